"""Published adapters, checked before the engine is given one; see Publication. Prompts are texts, the same for all."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from services.generator.policy.engine import Engine, RefusedAdapter
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.weights import RefusedWeights, Shape, check_finite, tensor_shapes, weights_path
from sparsesmith.policy.adapter import BASE, CONFIG_FILE, PREFIX, WEIGHTS_FILE, adapter_digest, base_identity
from sparsesmith_proto.policy import PolicyAnnouncement


class Adapters:
    """Folders of adapters; the engine has the language model, and samples under one of them or none."""

    def __init__(self, folder: Path, policy: PolicyFolder, most_rank: int) -> None:
        """`folder`: where announced adapters lie. `most_rank`: what the engine has room for."""
        self._folder = folder
        self._policy = policy
        self._most_rank = most_rank

    def check(self, announcement: PolicyAnnouncement) -> None:
        """Raises RefusedWeights: no adapter, another digest, of another base, of too high a rank; tensors that are
        unknown, misshapen or not finite."""
        path = weights_path(self._folder, announcement)
        try:
            digest = adapter_digest(path)
            if digest != announcement.sha256:
                raise RefusedWeights(f"{path.name} has SHA-256 {digest}, announced was {announcement.sha256}")
            rank = self._rank(json.loads((path / CONFIG_FILE).read_text(encoding="utf-8")))
            self._check_base(path / WEIGHTS_FILE)
            self._check_shapes(tensor_shapes([path / WEIGHTS_FILE]), rank)
            check_finite(path / WEIGHTS_FILE)
        except (OSError, SafetensorError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise RefusedWeights(f"{path.name} is no adapter that can be read: {error}") from error

    async def load(self, engine: Engine, of: PolicyAnnouncement | None) -> None:
        path, version = (None, 0) if of is None else (weights_path(self._folder, of), of.version)
        try:
            await engine.adopt(path, version)
        except RefusedAdapter as error:
            raise RefusedWeights(str(error)) from error

    def use_shipped(self) -> None:
        """A fresh engine has no adapter."""

    @cached_property
    def _base(self) -> str:
        return base_identity(self._policy.path)

    def _rank(self, config: Mapping[str, Any]) -> int:
        rank = config.get("r")
        if not isinstance(rank, int) or not 1 <= rank <= self._most_rank:
            limit = f"this engine takes 1 to {self._most_rank} (adapter_rank)"
            raise RefusedWeights(f"{CONFIG_FILE}: r is {rank!r}, {limit}")
        return rank

    def _check_base(self, path: Path) -> None:
        with safe_open(path, "pt") as tensors:
            base = (tensors.metadata() or {}).get(BASE)
        if base != self._base:
            raise RefusedWeights(f"{path.name}: {BASE} is {base}, the policy's is {self._base}: made for another model")

    def _check_shapes(self, found: Mapping[str, Shape], rank: int) -> None:
        if not found:
            raise RefusedWeights(f"{WEIGHTS_FILE} holds no tensors")
        expected = _factor_shapes(self._policy.shapes, rank)
        for name in sorted(found):
            if name not in expected:
                raise RefusedWeights(f"{name}: unknown tensor")
            if found[name] != expected[name]:
                raise RefusedWeights(f"{name} has shape {list(found[name])}, the policy's is {list(expected[name])}")


def _factor_shapes(weights: Mapping[str, Shape], rank: int) -> dict[str, Shape]:
    """Of the two factors of each weight matrix [outputs, inputs]: [rank, inputs] and [outputs, rank]."""
    shapes: dict[str, Shape] = {}
    for name, shape in weights.items():
        if len(shape) == 2 and name.endswith(".weight"):
            module = PREFIX + name.removesuffix(".weight")
            shapes[f"{module}.lora_A.weight"] = (rank, shape[1])
            shapes[f"{module}.lora_B.weight"] = (shape[0], rank)
    return shapes
