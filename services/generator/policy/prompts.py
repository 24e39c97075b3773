"""From a wire prompt to what the engine takes: embeddings by the policy's matrix encoder, or token ids of a text."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from services.generator.policy.engine import EmbeddingPrompt, EnginePrompt, TokenPrompt
from sparsesmith.elements import ALL_TYPES
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import load_description
from sparsesmith.policy.embedding import PromptEmbedder, load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import ElementType


class PromptWriter(Protocol):
    """Writes prompts in the form that one kind of policy was trained on. Thread-safe."""

    @property
    def encoder(self) -> Literal["structural", "sinusoidal", "text"]: ...

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """What the policy can write programs for; for others it is left out."""
        ...

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        """Blocking: looks at the whole pattern."""
        ...

    def prepared(self, weights: Path) -> Callable[[], None]:
        """Read a published file (blocking) and return the swap to its weights, which takes no time."""
        ...

    def use_shipped(self) -> None:
        """Back to the weights of the policy's folder."""
        ...


class MatrixPrompts:
    """Prompts as embeddings, for policies with a matrix encoder."""

    def __init__(self, folder: Path) -> None:
        self._shipped = load_embedder(folder)
        self._embedder = self._shipped
        self.encoder: Literal["structural", "sinusoidal"] = self._shipped.encoder.kind
        self.element_types = load_description(folder).element_types

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        return EmbeddingPrompt(self._embedder.embed([prompt_inputs(pattern, workload, prompt)])[0])

    def prepared(self, weights: Path) -> Callable[[], None]:
        return partial(self._use, self._shipped.with_weights(weights))

    def use_shipped(self) -> None:
        self._use(self._shipped)

    def _use(self, embedder: PromptEmbedder) -> None:
        self._embedder = embedder


class TextPrompts:
    """Prompts as token ids of a text, for any other language model; through its chat template where it has one."""

    encoder: Literal["text"] = "text"
    element_types = ALL_TYPES

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        text = text_prompt(pattern, workload, prompt)
        if self._tokenizer.chat_template is None:
            return TokenPrompt(tuple(self._tokenizer(text)["input_ids"]))
        messages = [{"role": "user", "content": text}]
        chat = str(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        return TokenPrompt(tuple(self._tokenizer(chat, add_special_tokens=False)["input_ids"]))

    def prepared(self, weights: Path) -> Callable[[], None]:
        return self.use_shipped

    def use_shipped(self) -> None:
        """There is no encoder to change."""
