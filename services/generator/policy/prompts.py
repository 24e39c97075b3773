"""From a wire prompt to what the engine takes: embeddings by the policy's matrix encoder, or token ids of a text."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from services.generator.policy.engine import EmbeddingPrompt, EnginePrompt, TokenPrompt
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.embedding import PromptEmbedder, load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import PolicyVersion


@dataclass(frozen=True)
class WrittenPrompt:
    """A prompt, and whose it is."""

    prompt: EnginePrompt
    version: PolicyVersion | None
    """Of the encoder that wrote it. None: every version is asked the same."""

    def is_for(self, version: PolicyVersion) -> bool:
        """Whether a language model of this version would have been asked so."""
        return self.version in (None, version)


class PromptWriter(Protocol):
    """Writes prompts in the form that one kind of policy was trained on. Thread-safe."""

    @property
    def encoder(self) -> Literal["structural", "sinusoidal", "text"]: ...

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> WrittenPrompt:
        """Blocking: looks at the whole pattern."""
        ...

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        """Read a published file (blocking) and return the swap to its weights, which takes no time."""
        ...

    def use_shipped(self) -> None:
        """Back to the weights of the policy's folder."""
        ...


class MatrixPrompts:
    """Prompts as embeddings, for policies with a matrix encoder."""

    def __init__(self, folder: Path) -> None:
        self._shipped = load_embedder(folder)
        self._in_use: tuple[PromptEmbedder, PolicyVersion] = self._shipped, 0
        self.encoder: Literal["structural", "sinusoidal"] = self._shipped.encoder.kind

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> WrittenPrompt:
        embedder, version = self._in_use
        return WrittenPrompt(EmbeddingPrompt(embedder.embed([prompt_inputs(pattern, workload, prompt)])[0]), version)

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        return partial(self._use, self._shipped.with_weights(weights), version)

    def use_shipped(self) -> None:
        self._use(self._shipped, 0)

    def _use(self, embedder: PromptEmbedder, version: PolicyVersion) -> None:
        self._in_use = embedder, version


class TextPrompts:
    """Prompts as token ids of a text, for any other language model; through its chat template where it has one."""

    encoder: Literal["text"] = "text"

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> WrittenPrompt:
        return WrittenPrompt(TokenPrompt(self._token_ids(text_prompt(pattern, workload, prompt))), None)

    def _token_ids(self, text: str) -> tuple[int, ...]:
        if self._tokenizer.chat_template is None:
            return tuple(self._tokenizer(text)["input_ids"])
        messages = [{"role": "user", "content": text}]
        chat = str(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        return tuple(self._tokenizer(chat, add_special_tokens=False)["input_ids"])

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        return self.use_shipped

    def use_shipped(self) -> None:
        """There is no encoder to change."""
