"""What a policy is shown, taken away: another matrix in the right one's place, or none; a parent without its report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

from torch import Tensor, nn

from services.generator.policy.engine import EmbeddingPrompt, EnginePrompt, InvalidPrompt
from services.generator.policy.kind import PromptWriter
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.prompts.header import HEADER_SIZES
from sparsesmith_proto.kernel import Parent, Prompt, Workload
from sparsesmith_proto.message import ElementType, EncoderName, PolicyVersion

Conditioning = Literal["shuffled", "none"]

Item = TypeVar("Item")


def shuffled(items: Sequence[Item], seed: int = 0) -> list[Item]:
    """Another one in each place; raises ValueError where there is no other."""
    if len(items) < 2:
        raise ValueError(f"shuffled: {len(items)} matrices are there, at least 2 are needed")
    order = list(range(len(items)))
    Random(seed).shuffle(order)
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [items[following[place]] for place in range(len(items))]


def blind(encoder: MatrixEncoder) -> None:
    """Makes all that an encoder says of matrices zero, from now on; what is asked for stays."""

    def only_header(_: nn.Module, __: object, soft: Tensor) -> Tensor:
        seen = soft.clone()
        seen[:, len(HEADER_SIZES) :] = 0
        return seen

    encoder.register_forward_hook(only_header)


@dataclass(frozen=True)
class Relay:
    """What another writer says of itself and does; what it writes is its subclasses'. See PromptWriter."""

    writer: PromptWriter

    @property
    def encoder(self) -> EncoderName:
        return self.writer.encoder

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        return self.writer.element_types

    @property
    def operations(self) -> tuple[str, ...] | None:
        return self.writer.operations

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        return self.writer.prepared(weights, version)

    def use_shipped(self) -> None:
        self.writer.use_shipped()


@dataclass(frozen=True)
class Unreported(Relay):
    """Prompts that show a parent, and nothing of what was measured of it."""

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        """See PromptWriter."""
        parent = prompt.parent
        if parent is not None:
            prompt = prompt.model_copy(update={"parent": unreported(parent)})
        return self.writer.write(pattern, workload, prompt)


def unreported(parent: Parent) -> Parent:
    """Its program alone."""
    return parent.model_copy(update={"report": ""})


@dataclass(frozen=True)
class ShownInstead(Relay):
    """Prompts that show something else in the matrix's place; what is asked for stays."""

    pattern: Pattern | None
    """None: zero embeddings, as `blind` makes them."""

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        """See PromptWriter. Raises InvalidPrompt where nothing is to be shown and the prompt has more than a matrix."""
        if self.pattern is not None:
            return self.writer.write(self.pattern, workload, prompt)
        written = self.writer.write(pattern, workload, prompt)
        if prompt.parent is not None or not isinstance(written, EmbeddingPrompt):
            raise InvalidPrompt("only of a prompt that is a matrix, as embeddings, is nothing shown")
        seen = written.embeddings.clone()
        seen[len(HEADER_SIZES) : -1] = 0  # The last is `<bos>`.
        return EmbeddingPrompt(seen, written.version)
