"""What a policy was asked, written again from the pattern and the prompt's own fields: by arrays, or in words."""

from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer

from services.trainer.tokenizer import encode_program
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.chat import ChatTokenizer, digest_of
from sparsesmith.policy.embedding import text_token_ids
from sparsesmith.prompts.arrays import PromptInputs, prompt_inputs
from sparsesmith.prompts.dialogue import Line
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import Digest, EncoderName


@dataclass(frozen=True)
class Asked:
    """All that stands before a program."""

    text_ids: tuple[int, ...]
    """As tokens; of a policy with an encoder the parent, where there is one, and `<bos>`."""
    shown: PromptInputs | None = None
    """To the encoder, before the tokens."""
    digest: Digest | None = None
    """Of the tokens, where they are the whole of it."""


class Prompts(Protocol):
    """How one policy is asked."""

    @property
    def encoder(self) -> EncoderName:
        """Prompts of others it cannot write."""
        ...

    def asked(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> Asked: ...

    def answer_ids(self, program: str) -> tuple[int, ...]:
        """A program and its end in the policy's words."""
        ...


class MatrixPrompts:
    """Of a policy with a matrix encoder."""

    def __init__(self, encoder: EncoderName, tokenizer: Tokenizer) -> None:
        self.encoder = encoder
        self._tokenizer = tokenizer

    def asked(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> Asked:
        shown = prompt_inputs(pattern, workload, prompt)
        return Asked(tuple(text_token_ids(self._tokenizer, shown)), shown)

    def answer_ids(self, program: str) -> tuple[int, ...]:
        return tuple(encode_program(self._tokenizer, program))


class TextPrompts:
    """Of a language model, as the generator asks it."""

    encoder: EncoderName = "text"

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer

    def asked(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> Asked:
        token_ids = self._tokenizer.token_ids((Line("user", text_prompt(pattern, workload, prompt)),))
        return Asked(token_ids, digest=digest_of(token_ids))

    def answer_ids(self, program: str) -> tuple[int, ...]:
        return self._tokenizer.answer_ids(program)
