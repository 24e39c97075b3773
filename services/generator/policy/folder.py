"""A policy's folder as the service sees it: what kind of policy it holds, what its weights must look like."""

import atexit
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from services.generator.policy.kind import PolicyKind, PromptWriter
from services.generator.policy.kinds import FITTING, kind_of
from services.generator.policy.weights import Shape, tensor_shapes

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class PolicyFolder:
    """Any Hugging Face folder of a causal language model, with what its kind of policy adds."""

    path: Path
    kind_name: str = FITTING

    @property
    def exists(self) -> bool:
        return (self.path / CONFIG_FILE).is_file()

    @property
    def name(self) -> str:
        return self.kind.name_of(self.path)

    @cached_property
    def kind(self) -> PolicyKind:
        """Raises InvalidOption where the folder holds no such policy."""
        return kind_of(self.path, self.kind_name)

    @property
    def takes_adapters(self) -> bool:
        """Whether it may be trained by adapters: a kind says so by an attribute of this name."""
        return bool(getattr(self.kind, "takes_adapters", False))

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Name -> shape of every tensor, as a published file must have them."""
        shapes = tensor_shapes(self.weight_files)
        for file, prefix in self.kind.weights_beside.items():
            shapes |= tensor_shapes([self.path / file], prefix=prefix)
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
        return self.kind.prompt_writer(self.path)

    def language_model_dir(self) -> Path:
        """A folder that holds the language model alone.

        Without an index vLLM loads every safetensors file of a folder and stumbles over others' weights, so such a
        folder is shown to it through links, in a temporary folder that goes with this process.
        """
        if not self.kind.weights_beside or (self.path / INDEX_FILE).is_file():
            return self.path.resolve()
        view = Path(tempfile.mkdtemp(prefix="sparsesmith-policy-"))
        atexit.register(shutil.rmtree, view, ignore_errors=True)
        for file in self.path.resolve().iterdir():
            if file.is_file() and file.name not in self.kind.weights_beside:
                (view / file.name).symlink_to(file)
        return view
