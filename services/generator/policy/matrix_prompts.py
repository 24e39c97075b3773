"""Prompts of policies with a matrix encoder, whole as embeddings. Reads torch."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from services.generator.policy.engine import EmbeddingPrompt, EnginePrompt, InvalidPrompt
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.description import load_description
from sparsesmith.policy.embedding import MAX_PARENT_TOKENS, PromptEmbedder, load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.kernel import Parent, Prompt, Workload
from sparsesmith_proto.message import EncoderName, PolicyVersion


class MatrixPrompts:
    """Prompts as embeddings; see PromptWriter."""

    def __init__(self, folder: Path) -> None:
        self._shipped = load_embedder(folder)
        self._in_use: tuple[PromptEmbedder, PolicyVersion] = self._shipped, 0
        self.encoder: EncoderName = self._shipped.encoder.kind
        self.element_types = load_description(folder).element_types
        self.operations = load_description(folder).operations

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        """See PromptWriter. Raises InvalidPrompt for a parent that would be cut."""
        embedder, version = self._in_use
        if prompt.parent is not None:
            _check_is_shown_whole(embedder, prompt.parent)
        return EmbeddingPrompt(embedder.embed([prompt_inputs(pattern, workload, prompt)])[0], version)

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        return partial(self._use, self._shipped.with_weights(weights), version)

    def use_shipped(self) -> None:
        self._use(self._shipped, 0)

    def _use(self, embedder: PromptEmbedder, version: PolicyVersion) -> None:
        self._in_use = embedder, version


def _check_is_shown_whole(embedder: PromptEmbedder, parent: Parent) -> None:
    num_tokens = embedder.num_tokens(parent.program)
    if num_tokens > MAX_PARENT_TOKENS:
        raise InvalidPrompt(f"a parent of {num_tokens} tokens: the policy is shown at most {MAX_PARENT_TOKENS}")
