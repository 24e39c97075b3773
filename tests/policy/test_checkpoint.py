"""Policy folders and published files: what is saved is what is loaded."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_policy, save_tokenizer, write_published_weights
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.policy.encoder import MatrixEncoder
from tests.policy.test_encoder import TOKENIZER, make_inputs

HIDDEN = 64


def make_policy(version: int = 0, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=8192,
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=64,
        tie_word_embeddings=True,
    )
    encoder = MatrixEncoder("structural", HIDDEN)
    model: Qwen3ForCausalLM = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    return Policy(model, encoder, PolicyDescription("tiny", version=version, training={"steps": 3}))


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().bfloat16().float()


def make_folder(tmp_path: Path, policy: Policy) -> Path:
    save_policy(policy, tmp_path / "policy")
    save_tokenizer(TOKENIZER.to_str(), tmp_path / "policy")
    return tmp_path / "policy"


def test_a_saved_policy_is_loaded_with_its_weights_in_bfloat16(tmp_path: Path) -> None:
    policy = make_policy(version=5)
    loaded = load_policy(make_folder(tmp_path, policy))
    for ours, theirs in ((policy.model, loaded.model), (policy.encoder, loaded.encoder)):
        expected = {name: rounded(value) for name, value in ours.state_dict().items()}
        assert all(torch.equal(value, expected[name]) for name, value in theirs.state_dict().items())
    assert loaded.description == policy.description
    assert loaded.model.lm_head.weight.data_ptr() == loaded.model.model.embed_tokens.weight.data_ptr()


def test_saving_leaves_the_models_own_weights_as_they_were(tmp_path: Path) -> None:
    policy = make_policy()
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    save_policy(policy, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())
    assert policy.model.dtype == torch.float32


def test_saving_over_a_folder_with_more_shards_leaves_no_stale_shard(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00009.safetensors").write_bytes(b"stale")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    save_policy(make_policy(), tmp_path)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]


def test_a_folder_for_other_features_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, make_policy())
    description = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**description, "feature_version": 99}))
    with pytest.raises(InvalidOption, match="structural features of version 99, these are of version 1"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "profiled", "feature_version": 1}, "profiled features of version 1, these are of version 2"),
        ({"encoder": "portrait"}, "an encoder 'portrait' .known: structural, sinusoidal, profiled,"),
    ],
)
def test_a_folder_of_another_encoder_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = make_folder(tmp_path, make_policy())
    description = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**description, **changes}))
    with pytest.raises(InvalidOption, match=message):
        load_policy(folder)


def test_a_published_file_has_hugging_face_names_and_the_encoder_under_its_prefix(tmp_path: Path) -> None:
    policy = make_policy(version=3)
    path = tmp_path / "weights-3.safetensors"
    digest = write_published_weights(policy, path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(tmp_path.iterdir()) == [path]
    names = set(load_file(path))
    encoder_names = {f"encoder.{name}" for name in policy.encoder.state_dict()}
    assert names == (set(policy.model.state_dict()) - {"lm_head.weight"}) | encoder_names


def test_an_embedder_with_published_weights_embeds_as_the_trained_policy_does(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, make_policy(seed=0))
    trained = make_policy(version=1, seed=1)
    write_published_weights(trained, tmp_path / "new.safetensors")
    shipped = load_embedder(folder)
    renewed = shipped.with_weights(tmp_path / "new.safetensors")
    save_policy(trained, tmp_path / "trained")
    save_tokenizer(TOKENIZER.to_str(), tmp_path / "trained")
    expected = load_embedder(tmp_path / "trained").embed([make_inputs()])[0]
    assert torch.equal(renewed.embed([make_inputs()])[0], expected)
    assert not torch.equal(shipped.embed([make_inputs()])[0], expected)


def test_the_saved_tokenizer_file_is_the_tokenizer(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, make_policy())
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).to_str() == TOKENIZER.to_str()
