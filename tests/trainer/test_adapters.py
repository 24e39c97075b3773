"""A language model that is asked in words and trained by adapters: on a tiny random one."""

import copy
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from services.trainer.adapters import AdaptedModel, AdapterOptions, check_output_layer
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import BatchRules, RecordReader, TrainingBatch, UsableRecord, assemble
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import TextPrompts
from services.trainer.opened_policy import open_policy
from services.trainer.policy_folder import missing_policy
from services.trainer.policy_model import ValueHead, text_batch
from services.trainer.settings import TrainerSettings
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.adapter import base_identity
from sparsesmith.policy.chat import ChatTokenizer, digest_of
from sparsesmith.policy.checkpoint import save_language_model, save_tokenizer
from sparsesmith.prompts.dialogue import Line
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt
from sparsesmith_proto.reward import RewardRecord
from tests.trainer.records import PATTERN, StoredPatterns, make_record, make_sampled
from tests.trainer.toy_text_policy import make_tokenizer

peft = pytest.importorskip("peft")

HIDDEN = 32
VOCABULARY = 768
"""Room for the toy's."""
BASE = "0" * 64
ARMS = (40, 41, 42, 43)
TEXT = text_batch([[20, 21, 22, 23], [30, 31]], [[40, 41, 0], [50, 0]])
CHAT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"


def make_model(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """Its weights are as a folder in bfloat16 has them."""
    torch.manual_seed(seed)
    size = {"hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(
        **{
            **size,
            "vocab_size": VOCABULARY,
            "num_key_value_heads": 1,
            "max_position_embeddings": 16384,
            "initializer_range": 0.15,
            "eos_token_id": 0,
            "bos_token_id": 1,
            **changes,
        }
    )
    model: LlamaForCausalLM = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


def adapted(model: nn.Module | None = None, **changes: Any) -> AdaptedModel:
    options = AdapterOptions(**{"adapter_rank": 4, **changes})
    torch.manual_seed(0)
    return AdaptedModel(model or make_model(), BASE, options, ValueHead(HIDDEN)).eval()


def moved(policy: AdaptedModel, seed: int = 1) -> AdaptedModel:
    """As some updates would leave it."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for factor in policy.policy_parameters():
            factor.add_(0.1 * torch.randn_like(factor))
    return policy


@torch.no_grad()
def said(policy: Any) -> torch.Tensor:
    logprobs_BT: torch.Tensor = policy.logprobs(policy.hidden_states(None, TEXT), TEXT)[0]
    return logprobs_BT


@torch.no_grad()
def said_by(model: nn.Module) -> torch.Tensor:
    """The same by Hugging Face's own forward pass."""
    logits = model(input_ids=TEXT.token_ids_BT).logits
    words = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, TEXT.token_ids_BT[:, 1:, None])[..., 0]
    return torch.cat([torch.zeros(len(words), 1), words], dim=1) * TEXT.sampled_mask_BT


def test_a_fresh_adapter_says_what_the_model_says_and_so_does_the_reference_ever_after() -> None:
    model = make_model()
    alone = said_by(copy.deepcopy(model))
    policy = adapted(model)
    reference = policy.shipped()
    torch.testing.assert_close(said(policy), alone, rtol=0, atol=1e-5)
    moved(policy)
    assert float((said(policy) - alone).abs().max()) > 0.01
    torch.testing.assert_close(said(reference), alone, rtol=0, atol=1e-5)
    assert all(each.requires_grad for each in policy.policy_parameters())
    policy.return_to(reference)
    torch.testing.assert_close(said(policy), alone, rtol=0, atol=1e-5)


def test_only_the_factors_are_trained_and_kept() -> None:
    policy = adapted()
    factors = 2 * 2 * 7
    assert len(policy.policy_parameters()) == factors
    policy.logprobs(policy.hidden_states(None, TEXT), TEXT)[0].sum().backward()  # type: ignore[no-untyped-call]
    with_gradients = [name for name, each in policy.named_parameters() if each.grad is not None]
    assert len(with_gradients) == factors and all(".lora_" in name for name in with_gradients)
    assert len(policy.kept_state()) == factors + 4, "the value head's too"


def test_layers_that_are_computed_again_give_the_same_gradients() -> None:
    kept, again = moved(adapted(recomputes_layers=False)), moved(adapted(recomputes_layers=True))
    for policy in (kept, again):
        policy.logprobs(policy.hidden_states(None, TEXT), TEXT)[0].sum().backward()  # type: ignore[no-untyped-call]
    for one, other in zip(kept.policy_parameters(), again.policy_parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad)


def test_what_is_published_is_what_peft_reads_and_equal_weights_give_equal_bytes(tmp_path: Path) -> None:
    policy = moved(adapted())
    digest = policy.publish(tmp_path / policy.published_name(7), 7)
    assert policy.publish(tmp_path / "again", 7) == digest
    read = peft.PeftModel.from_pretrained(make_model(), tmp_path / "policy-7").eval()
    with policy.rounded():
        torch.testing.assert_close(said_by(read), said(policy), rtol=0, atol=1e-5)
    other = adapted()
    other.take_published(tmp_path / "policy-7")
    torch.testing.assert_close(said(other), said_by(read), rtol=0, atol=1e-5)
    assert {path.name for path in (tmp_path / "policy-7").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert all(
        each.dtype == torch.bfloat16 for each in load_file(tmp_path / "again/adapter_model.safetensors").values()
    )


def test_equal_weights_give_equal_bytes_in_every_process(tmp_path: Path) -> None:
    """Names of adapted weights are a set to peft."""
    code = "import sys; from pathlib import Path; from tests.trainer.test_adapters import adapted, moved; "
    code += "print(moved(adapted()).publish(Path(sys.argv[1]), 1))"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(tmp_path / "other")]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert other.strip() == moved(adapted()).publish(tmp_path / "own", 1)


def make_reader(folder: Path, **changes: Any) -> RecordReader:
    rules: dict[str, Any] = {"max_text_tokens": 16384, "max_policy_age": 4, "reward": "milestone"}
    prompts = TextPrompts(ChatTokenizer(folder))
    kept = BatchRules(encoder="text", vocabulary=VOCABULARY, **{**rules, **changes})
    return RecordReader(StoredPatterns(PATTERN), prompts, kept)


def write_folder(folder: Path, model: nn.Module | None = None, chat: str = "") -> Path:
    save_language_model(model or make_model(), folder)  # type: ignore[arg-type]
    save_tokenizer(make_tokenizer().to_str(), folder)
    if chat:
        (folder / "chat_template.jinja").write_text(chat)
    return folder


def asked_of(folder: Path) -> str:
    """The digest of the prompt that the records below were asked."""
    words = text_prompt(PATTERN, make_record().workload, Prompt(encoder="text", sample_seed=1, architecture="sm_90"))
    return digest_of(ChatTokenizer(folder).token_ids((Line("user", words),)))


def pulled(folder: Path, arm: int, number: int, **changes: Any) -> RewardRecord:
    origin = make_sampled(
        {"encoder": "text"}, token_ids=(arm, 0), **{"asked": asked_of(folder), "logprobs": (-4.0, -4.0), **changes}
    )
    return make_record(f"job:{arm}-{number}", reward=float(arm == ARMS[0]), origin=origin)


def batch_of(folder: Path, logprobs: torch.Tensor | None = None) -> TrainingBatch:
    """Each arm pulled twice."""
    reader, records = make_reader(folder), []
    for row, (arm, number) in enumerate((arm, number) for arm in ARMS for number in range(2)):
        known = {} if logprobs is None else {"logprobs": tuple(logprobs[row][-2:].tolist())}
        usable = reader.read(pulled(folder, arm, number, **known), 0)
        assert isinstance(usable, UsableRecord), usable
        records.append(usable)
    return assemble(records, 0)


@pytest.mark.parametrize("algorithm", ["ppo", "rloo", "expert"])
def test_what_is_rewarded_becomes_likelier_and_the_distance_from_the_model_is_told(
    algorithm: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path, chat=CHAT)
    options = LearnerOptions(algorithm=algorithm, adapter_rate=1e-2, critic_gate=0, program_kl_limit=0.5)
    learner = Learner(adapted(), options)
    batch = batch_of(folder)
    first = learner.logprobs(batch)
    batch = batch_of(folder, first)
    metrics = [learner.update(batch) for _ in range(2)]
    last = learner.logprobs(batch)
    assert float((last - first)[:2].sum()) > 0.1
    assert all(each["program_kl"] <= 0.5 for each in metrics)
    assert metrics[0]["logprob_gap"] < 1e-4, "a fresh adapter is published as it is"
    assert metrics[1]["program_kl_reference"] > 1e-3
    assert math.isfinite(metrics[1]["grad_norm"])


def test_a_restored_learner_goes_on_as_the_saved_one_would_have(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    options = LearnerOptions(adapter_rate=1e-2, critic_gate=0, program_kl_limit=0.5)
    saved, batch = Learner(adapted(), options), batch_of(folder)
    saved.update(batch)
    restored = Learner(adapted(), options)
    restored.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert restored.update(batch) == pytest.approx(saved.update(batch), rel=1e-4, abs=1e-6)
    assert not any("base_layer" in name for name in saved.state_dict()["networks"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", [None, "f" * 64])
def test_a_record_that_was_asked_something_else_is_not_learned_from(asked: str | None, tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    assert isinstance(make_reader(folder).read(pulled(folder, 40, 0), 0), UsableRecord)
    assert make_reader(folder).read(pulled(folder, 40, 0, asked=asked), 0) == "other_prompt"


def test_a_chat_template_is_part_of_what_is_asked(tmp_path: Path) -> None:
    plain, chat = write_folder(tmp_path / "plain"), write_folder(tmp_path / "chat", chat=CHAT)
    assert base_identity(plain) != base_identity(chat)
    assert make_reader(chat).read(pulled(plain, 40, 0), 0) == "other_prompt"


def test_a_prompt_and_a_program_beyond_the_limit_are_too_long(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    assert make_reader(folder, max_text_tokens=512).read(pulled(folder, 40, 0), 0) == "too_long"


def settings(folder: Path, **changes: Any) -> TrainerSettings:
    return TrainerSettings(**{"policy_dir": folder, "adapter_rank": 4, "max_text_tokens": 8192, **changes})


def test_a_folder_becomes_a_policy_to_train(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    opened = open_policy(settings(folder), "cpu")
    assert (opened.prompts.encoder, opened.vocabulary) == ("text", VOCABULARY)
    torch.testing.assert_close(said(opened.networks), said_by(make_model()), rtol=0, atol=1e-5)
    others = [open_policy(settings(folder, **each), "cpu").identity for each in ({}, {"adapter_rank": 8})]
    assert others[0] == opened.identity != others[1], "a checkpoint of other adapters is not gone on from"


def test_without_a_rank_a_folder_without_an_encoder_is_no_policy_to_train_and_the_setting_is_named(
    tmp_path: Path,
) -> None:
    folder = write_folder(tmp_path)
    assert missing_policy(settings(folder)) is None
    told = missing_policy(settings(folder, adapter_rank=0)) or ""
    assert "has no policy.json, encoder.safetensors" in told and "SPARSESMITH_ADAPTER_RANK" in told


@pytest.mark.parametrize(
    ("changes", "field", "value", "limit"),
    [
        ({"adapter_rank": 33}, "adapter_rank", "33", str(HIDDEN)),
        ({"max_text_tokens": 32768}, "max_text_tokens", "32768", "16384"),
        ({"value_dir": Path("a-value-model")}, "value_dir", "a-value-model", "empty"),
        ({"adapter_rank": 0, "policy_kind": "text"}, "adapter_rank", "0", "1 or more"),
    ],
)
def test_settings_that_do_not_fit_the_model_name_field_value_and_limit(
    changes: dict[str, Any], field: str, value: str, limit: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOption) as told:
        open_policy(settings(write_folder(tmp_path), **changes), "cpu")
    assert (told.value.field, told.value.value, told.value.limit) == (field, value, limit)
    assert value in told.value.message and limit in told.value.message


def test_without_the_extra_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InvalidOption, match=r"sparsesmith\[lora\]"):
        open_policy(settings(write_folder(tmp_path)), "cpu")


@pytest.mark.parametrize("rank", [-1, 513])
def test_a_rank_out_of_range_is_named_at_the_start(rank: int) -> None:
    with pytest.raises(ValueError, match=r"adapter_rank|ADAPTER_RANK"):
        TrainerSettings(adapter_rank=rank)


def test_one_variable_sets_the_rank_of_trainer_and_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.generator.settings import GeneratorSettings

    monkeypatch.setenv("SPARSESMITH_ADAPTER_RANK", "8")
    assert (TrainerSettings().adapter_rank, GeneratorSettings().adapter_rank) == (8, 8)
    monkeypatch.setenv("SPARSESMITH_GENERATOR_ADAPTER_RANK", "32")
    assert (TrainerSettings().adapter_rank, GeneratorSettings().adapter_rank) == (8, 32)


def test_a_tokenizer_with_more_words_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, make_model(vocab_size=100))
    with pytest.raises(InvalidOption, match=r"ids up to .* its model knows those below 100") as told:
        open_policy(settings(folder), "cpu")
    assert told.value.limit == "100"


def test_logits_that_are_more_than_a_linear_layer_are_refused() -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.5,
        initializer_range=0.5,
    )
    check_output_layer(adapted())
    with pytest.raises(InvalidOption, match="gemma2"):
        check_output_layer(adapted(Gemma2ForCausalLM(config)))  # type: ignore[no-untyped-call]


def test_a_state_of_other_adapters_is_refused_by_a_name() -> None:
    policy = adapted()
    state = {name: tensor for name, tensor in policy.kept_state().items() if "q_proj" not in name}
    with pytest.raises(ValueError, match="q_proj"):
        policy.take_state(state)


def test_rounding_lasts_for_a_while(tmp_path: Path) -> None:
    policy = moved(adapted())
    before = said(policy)
    with pytest.raises(RuntimeError), policy.rounded():
        assert not torch.equal(said(policy), before)
        raise RuntimeError
    assert torch.equal(said(policy), before)
