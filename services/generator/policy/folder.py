"""A policy's folder as the service sees it: what kind of prompt it takes, what its weights must look like."""

import atexit
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from services.generator.policy.prompts import MatrixPrompts, PromptWriter, TextPrompts
from services.generator.policy.weights import Shape, tensor_shapes
from services.generator.policy.worker_extension import ENCODER_PREFIX
from sparsesmith.policy.checkpoint import DESCRIPTION_FILE, ENCODER_FILE, load_description

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class PolicyFolder:
    """Any Hugging Face folder of a causal language model; with policy.json and encoder.safetensors it is ours."""

    path: Path

    @property
    def exists(self) -> bool:
        return (self.path / CONFIG_FILE).is_file()

    @property
    def name(self) -> str:
        """The policy's own name, else its folder's."""
        return load_description(self.path).name if self._has_encoder else self.path.resolve().name

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Name -> shape of every tensor, as a published file must have them."""
        shapes = tensor_shapes(self.weight_files)
        if self._has_encoder:
            shapes |= tensor_shapes([self.path / ENCODER_FILE], prefix=ENCODER_PREFIX)
        return shapes

    @property
    def weight_files(self) -> tuple[Path, ...]:
        """Of the language model."""
        return tuple(sorted(self.path.resolve().glob("model*.safetensors")))

    @property
    def max_positions(self) -> int:
        """Longest context of the model's architecture, in tokens."""
        return int(json.loads((self.path / CONFIG_FILE).read_text(encoding="utf-8"))["max_position_embeddings"])

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def prompt_writer(self) -> PromptWriter:
        """Blocking: reads the encoder or the tokenizer."""
        return MatrixPrompts(self.path) if self._has_encoder else TextPrompts(self.path)

    def language_model_dir(self) -> Path:
        """A folder that holds the language model alone.

        Without an index vLLM loads every safetensors file of a folder and stumbles over the encoder's, so such a folder
        is shown to it through links, in a temporary folder that goes with this process.
        """
        if not self._has_encoder or (self.path / INDEX_FILE).is_file():
            return self.path.resolve()
        view = Path(tempfile.mkdtemp(prefix="sparsesmith-policy-"))
        atexit.register(shutil.rmtree, view, ignore_errors=True)
        for file in self.path.resolve().iterdir():
            if file.is_file() and file.name != ENCODER_FILE:
                (view / file.name).symlink_to(file)
        return view

    @property
    def _has_encoder(self) -> bool:
        return (self.path / DESCRIPTION_FILE).is_file() and (self.path / ENCODER_FILE).is_file()
