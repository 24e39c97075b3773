"""A policy as a folder of files, and as the one file that is published to a running engine."""

import json
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

MAX_SHARD_BYTES = 15_900_000
"""Shards stay below what code hosts and slow links take in one piece."""


def save_language_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    """config.json and model-*.safetensors in bfloat16 with Hugging Face names. The model itself is left as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("model*.safetensors"), *folder.glob("model.safetensors.index.json")]:
        stale.unlink()
    weights = {name: value.detach().to("cpu", torch.bfloat16) for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    model.save_pretrained(folder, state_dict=weights, max_shard_size=MAX_SHARD_BYTES)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for shard in folder.glob("model*.safetensors"):
        shard.chmod(0o644)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
