"""What a kind of policy is: what its folder holds beside a language model, and how it is asked for a program.

Chosen by name (`policy_kind` of the settings), or the first that fits the folder. Others register theirs (`kinds`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from services.generator.policy.engine import EnginePrompt
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import ElementType, EncoderName, PolicyVersion


class PromptWriter(Protocol):
    """Writes prompts in the form that one kind of policy was trained on. Thread-safe."""

    @property
    def encoder(self) -> EncoderName:
        """How prompts are written: the trainer learns only from those that it can write again."""
        ...

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """What the policy can write programs for; for others it is left out."""
        ...

    @property
    def operations(self) -> tuple[str, ...] | None:
        """Those that it can write programs for; None: any on a matrix."""
        ...

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        """Blocking: looks at the whole pattern. Raises InvalidPrompt for a parent that cannot be shown."""
        ...

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        """Read a version's published file (blocking) and return the swap to its weights, which takes no time.

        Prompts that are not the same for every version name the version that wrote them.
        """
        ...

    def use_shipped(self) -> None:
        """Back to the weights of the policy's folder."""
        ...


class PolicyKind(Protocol):
    """One kind of policy."""

    @property
    def weights_beside(self) -> Mapping[str, str]:
        """Files of weights that are not the language model's: file name -> prefix of its tensors in published files."""
        ...

    def fits(self, folder: Path) -> bool:
        """Whether the folder holds a policy of this kind. Cheap: looks at names of files."""
        ...

    def name_of(self, folder: Path) -> str:
        """The policy's name, for people."""
        ...

    def prompt_writer(self, folder: Path) -> PromptWriter:
        """Blocking: reads weights or a tokenizer."""
        ...
