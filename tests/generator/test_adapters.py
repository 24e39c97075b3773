"""Published adapters: checked before a real engine is given one, and samples under them."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from services.generator.policy.adapters import Adapters
from services.generator.policy.engine import Engine, EngineOptions, InvalidPrompt, Sample, TokenPrompt, load_engine
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.weights import RefusedWeights
from services.trainer.adapters import AdaptedModel, AdapterOptions
from sparsesmith.policy.adapter import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, base_identity
from sparsesmith_proto.policy import PolicyAnnouncement
from tests.trainer.toy_text_policy import write_text_policy

peft = pytest.importorskip("peft")

PROMPT = TokenPrompt(tuple(range(20, 60)))
MOST_RANK = 8
CLOSE = 1e-4
"""Nats."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> PolicyFolder:
    """A random model that is asked in words."""
    return PolicyFolder(write_text_policy(tmp_path_factory.mktemp("text"), steps=0))


def adapted(folder: PolicyFolder, seed: int = 1, rank: int = 4) -> AdaptedModel:
    """As training might leave it."""
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    torch.manual_seed(seed)
    policy = AdaptedModel(model, base_identity(folder.path), AdapterOptions(rank)).eval()
    with torch.no_grad():
        for factor in policy.policy_parameters():
            factor.copy_((0.1 * torch.randn_like(factor)).to(torch.bfloat16))
    return policy


def published(folder: PolicyFolder, exchange_dir: Path, version: int, rank: int = 4) -> PolicyAnnouncement:
    policy = adapted(folder, version, rank)
    name = policy.published_name(version)
    return announced(version, name, policy.publish(exchange_dir / name, version))


def announced(version: int, name: str, digest: str) -> PolicyAnnouncement:
    return PolicyAnnouncement(
        version=version, weights=name, sha256=digest, step=version, metrics={}, created_at="2026-11-23T00:00:00Z"
    )


def rewritten(exchange_dir: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """The tensors of the first version, with the same metadata."""
    path = exchange_dir / "policy-1" / WEIGHTS_FILE
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=metadata)


def other_base(exchange_dir: Path) -> None:
    path = exchange_dir / "policy-1" / WEIGHTS_FILE
    save_file(load_file(path), path, metadata={"base": "f" * 64})


def not_finite(exchange_dir: Path) -> None:
    rewritten(exchange_dir, lambda tensors: tensors.update({name: each * torch.nan for name, each in tensors.items()}))


def unknown(exchange_dir: Path) -> None:
    rewritten(
        exchange_dir, lambda tensors: tensors.update({"base_model.model.lm_tail.lora_A.weight": torch.ones(4, 64)})
    )


def misshapen(exchange_dir: Path) -> None:
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
    rewritten(exchange_dir, lambda tensors: tensors.update({name: torch.ones(4, 65)}))


def no_rank(exchange_dir: Path) -> None:
    path = exchange_dir / "policy-1" / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "r": "many"}))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (other_base, r"base is f{64}, the policy's is \w{64}: made for another model"),
        (not_finite, "holds values that are not finite"),
        (unknown, r"base_model.model.lm_tail.lora_A.weight: unknown tensor"),
        (misshapen, r"up_proj.lora_A.weight has shape \[4, 65\], the policy's is \[4, 64\]"),
        (no_rank, r"r is 'many', this engine takes 1 to 8 \(adapter_rank\)"),
    ],
)
def test_a_spoilt_adapter_is_refused_in_words_with_value_and_limit(
    folder: PolicyFolder, exchange_dir: Path, spoil: Callable[[Path], None], why: str
) -> None:
    sound = published(folder, exchange_dir, 1)
    adapters = Adapters(exchange_dir, folder, MOST_RANK)
    adapters.check(sound)
    spoil(exchange_dir)
    with pytest.raises(RefusedWeights, match="has SHA-256"):
        adapters.check(sound)
    with pytest.raises(RefusedWeights, match=why):
        adapters.check(announced(1, "policy-1", adapter_digest(exchange_dir / "policy-1")))


def test_a_rank_above_the_engines_is_refused(folder: PolicyFolder, exchange_dir: Path) -> None:
    with pytest.raises(RefusedWeights, match="r is 16, this engine takes 1 to 8"):
        Adapters(exchange_dir, folder, MOST_RANK).check(published(folder, exchange_dir, 1, rank=16))


@pytest.mark.parametrize("name", ["policy-9", "../policy-1"])
def test_an_adapter_that_is_not_there_or_elsewhere_is_refused(
    folder: PolicyFolder, exchange_dir: Path, name: str
) -> None:
    with pytest.raises(RefusedWeights, match=name):
        Adapters(exchange_dir, folder, MOST_RANK).check(announced(1, name, "0" * 64))


def test_half_an_adapter_is_refused(folder: PolicyFolder, exchange_dir: Path) -> None:
    sound = published(folder, exchange_dir, 1)
    (exchange_dir / "policy-1" / CONFIG_FILE).unlink()
    with pytest.raises(RefusedWeights, match="policy-1 is no adapter that can be read"):
        Adapters(exchange_dir, folder, MOST_RANK).check(sound)


@dataclass
class Live:
    """An engine with room for adapters, on an event loop of its own."""

    runner: asyncio.Runner
    engine: Engine

    def sample(self, count: int = 2, tokens: int = 20) -> list[Sample]:
        async def all_of_them() -> list[Sample]:
            return await asyncio.gather(
                *(self.engine.sample(PROMPT, temperature=1.0, max_tokens=tokens) for _ in range(count))
            )

        return self.runner.run(all_of_them())

    def adapters(self) -> set[int]:
        found: set[int] = set(self.runner.run(self.engine._llm.list_loras()))
        return found


@pytest.fixture(scope="module")
def live(folder: PolicyFolder) -> Iterator[Live]:
    options = EngineOptions(folder.language_model_dir(), max_context_tokens=1024, max_samples=8, adapter_rank=MOST_RANK)
    with asyncio.Runner() as runner:

        async def start() -> Engine:
            return Engine(await asyncio.to_thread(load_engine, options))

        engine = runner.run(start())
        yield Live(runner, engine)
        runner.run(engine.close())


def distance(folder: PolicyFolder, samples: list[Sample], version: int) -> float:
    """Most nats between what samples say of a token and what a version says."""
    policy = adapted(folder, version) if version else None
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    worst = 0.0
    for sample in samples:
        ids = torch.tensor([[*PROMPT.token_ids, *sample.token_ids]])
        with torch.no_grad():
            logits = (model if policy is None else policy.model)(input_ids=ids).logits[
                0, len(PROMPT.token_ids) - 1 : -1
            ]
        said = torch.log_softmax(logits, -1).gather(-1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        worst = max(worst, float((said - torch.tensor(sample.logprobs)).abs().max()))
    return worst


def test_each_version_is_sampled_under_its_own_adapter_and_the_ones_before_are_gone(
    live: Live, folder: PolicyFolder, exchange_dir: Path
) -> None:
    adapters = Adapters(exchange_dir, folder, MOST_RANK)
    assert distance(folder, live.sample(), 0) < CLOSE
    for version in (1, 2):
        live.runner.run(adapters.load(live.engine, published(folder, exchange_dir, version)))
        samples = live.sample()
        assert {each for sample in samples for each in sample.versions} == {version}
        assert distance(folder, samples, version) < CLOSE
        assert distance(folder, samples, version - 1) > 100 * CLOSE
        assert len(live.adapters()) == 1
    live.runner.run(adapters.load(live.engine, None))
    assert distance(folder, live.sample(), 0) < CLOSE
    assert live.adapters() == set()


def test_a_version_that_comes_again_is_a_new_adapter_to_the_engine(
    live: Live, folder: PolicyFolder, exchange_dir: Path
) -> None:
    """Rolled back and forth: what vLLM kept of prompts is found under an adapter's name."""
    adapters, first = Adapters(exchange_dir, folder, MOST_RANK), published(folder, exchange_dir, 1)
    numbers = list[int]()
    for each in (first, None, first):
        live.runner.run(adapters.load(live.engine, each))
        numbers += live.adapters()
    assert len(set(numbers)) == 2
    assert distance(folder, live.sample(), 1) < CLOSE


def test_samples_in_the_engine_end_under_the_adapter_that_they_began_with(
    live: Live, folder: PolicyFolder, exchange_dir: Path
) -> None:
    adapters = Adapters(exchange_dir, folder, MOST_RANK)
    versions = [published(folder, exchange_dir, version) for version in (1, 2)]

    async def across_a_change() -> list[Sample]:
        await adapters.load(live.engine, versions[0])
        begun = [asyncio.create_task(live.engine.sample(PROMPT, temperature=1.0, max_tokens=900)) for _ in range(8)]
        await asyncio.sleep(0.5)
        await adapters.load(live.engine, versions[1])
        assert not all(each.done() for each in begun), "they ended too soon to tell"
        return list(await asyncio.gather(*begun))

    samples = live.runner.run(across_a_change())
    assert {each for sample in samples for each in sample.versions} == {1}
    assert distance(folder, samples, 1) < CLOSE
    assert distance(folder, live.sample(), 2) < CLOSE
    assert len(live.adapters()) == 1, "the first one went with its last sample"


def test_an_adapter_that_vllm_does_not_take_leaves_the_engine_as_it_was(
    live: Live, folder: PolicyFolder, exchange_dir: Path
) -> None:
    adapters = Adapters(exchange_dir, folder, MOST_RANK)
    live.runner.run(adapters.load(live.engine, published(folder, exchange_dir, 1)))
    second = published(folder, exchange_dir, 2)
    shutil.rmtree(exchange_dir / "policy-2")
    with pytest.raises(RefusedWeights, match="policy-2 does not load"):
        live.runner.run(adapters.load(live.engine, second))
    assert live.engine.is_alive and live.engine.version == 1
    assert distance(folder, live.sample(), 1) < CLOSE


def test_a_prompt_longer_than_the_context_is_told_with_both_numbers(live: Live) -> None:
    prompt = TokenPrompt(tuple([20] * 1000))
    with pytest.raises(InvalidPrompt, match="1000 tokens and 100 more do not fit a context of 1024"):
        live.runner.run(live.engine.sample(prompt, temperature=1.0, max_tokens=100))
