"""A policy as a folder of files, and as the one file that is published to a running engine.

config.json                 the language model (Qwen3)
model-*.safetensors         its weights in bfloat16, Hugging Face names, tied embeddings once
encoder.safetensors         the matrix encoder's weights
tokenizer.json, tokenizer_config.json
policy.json                 what kind of encoder, which version of the features
README.md                   model card
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from sparsesmith.policy.description import (
    DESCRIPTION_FILE,
    ENCODER_FILE,
    ENCODER_PREFIX,
    PolicyDescription,
    load_description,
)
from sparsesmith.policy.encoder import MatrixEncoder

MAX_SHARD_BYTES = 15_900_000
"""Shards stay below what code hosts and slow links take in one piece."""

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 4096,
}


@dataclass(frozen=True)
class Policy:
    """The networks that a policy folder holds."""

    model: Qwen3ForCausalLM
    encoder: MatrixEncoder
    description: PolicyDescription


def save_policy(policy: Policy, folder: Path) -> None:
    """Everything but the tokenizer and the model card, which do not change with the weights."""
    save_language_model(policy.model, folder)
    save_file(_saved(policy.encoder.state_dict()), folder / ENCODER_FILE)
    (folder / ENCODER_FILE).chmod(0o644)
    _write_json(folder / DESCRIPTION_FILE, asdict(policy.description))


def load_policy(folder: Path, dtype: torch.dtype = torch.float32) -> Policy:
    """A policy on the CPU. Raises InvalidOption where the folder was made for other features."""
    description = load_description(folder)
    model = load_language_model(folder, dtype)
    encoder = MatrixEncoder(description.encoder, model.config.hidden_size)
    encoder.load_state_dict(load_file(folder / ENCODER_FILE))
    return Policy(model, encoder.to(dtype), description)


def load_language_model(folder: Path, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """The language model of a folder, on the CPU."""
    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(folder, dtype=dtype)
    return model


def save_language_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    """config.json and model-*.safetensors in bfloat16 with Hugging Face names. The model itself is left as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("model*.safetensors"), *folder.glob("model.safetensors.index.json")]:
        stale.unlink()
    model.save_pretrained(folder, state_dict=language_model_weights(model), max_shard_size=MAX_SHARD_BYTES)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for shard in folder.glob("model*.safetensors"):
        shard.chmod(0o644)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    _write_json(folder / "config.json", config)


def save_tokenizer(tokenizer_json: str, folder: Path) -> None:
    """tokenizer.json with a configuration that makes Hugging Face and vLLM take it as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)


def language_model_weights(model: Qwen3ForCausalLM, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """Copies on the CPU by Hugging Face name, tied embeddings once."""
    weights = _saved(model.state_dict(), dtype)
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    return weights


def write_published_weights(policy: Policy, path: Path) -> str:
    """One safetensors file for a running engine: Hugging Face names, and the encoder's under `encoder.`.

    Written beside and renamed, so that a reader never sees half a file. Returns its SHA-256 in hexadecimal.
    """
    weights = language_model_weights(policy.model)
    weights |= {ENCODER_PREFIX + name: value for name, value in _saved(policy.encoder.state_dict()).items()}
    partial = path.with_name(path.name + ".part")
    save_file(weights, partial, metadata={"version": str(policy.description.version)})
    partial.chmod(0o644)
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    partial.replace(path)
    return digest


def _saved(state: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", dtype, copy=True).contiguous() for name, value in state.items()}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
