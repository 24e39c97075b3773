"""From a wire prompt to what the engine takes: embeddings by the policy's matrix encoder, or token ids of a text."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from services.generator.policy.engine import EmbeddingPrompt, EnginePrompt, TokenPrompt
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.policy.checkpoint import load_description
from sparsesmith.policy.embedding import PromptEmbedder, load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload


class PromptWriter(Protocol):
    """Writes prompts in the form that one kind of policy was trained on. Thread-safe."""

    @property
    def encoder(self) -> Literal["structural", "sinusoidal", "text"]: ...

    def knows(self, problem: Problem) -> bool:
        """Whether prompts can be written for it, in a form that the policy was trained on."""
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
        self._operations = load_description(folder).operations
        self._embedder = self._shipped
        self.encoder: Literal["structural", "sinusoidal"] = self._shipped.encoder.kind

    def knows(self, problem: Problem) -> bool:
        """Those of its training alone: of another it has read an id that means nothing to it."""
        return problem.workload.operation in self._operations

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

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def knows(self, problem: Problem) -> bool:
        """Any operation on a matrix: the text says what it is."""
        return problem.matrix is not None

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
