"""What a language model is asked in words, as its tokens: generator and trainer write the same ids for a dialogue.

A chat template may say more than it was given (today's date, say): what was asked carries a digest of its tokens, and
who writes it again compares (`digest_of`).
"""

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparsesmith.errors import InvalidOption
from sparsesmith.prompts.dialogue import Dialogue
from sparsesmith_proto.message import Digest


class ChatTokenizer:
    """The tokenizer of a Hugging Face folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def token_ids(self, asked: Dialogue) -> tuple[int, ...]:
        """Of a dialogue; where the model has no chat template, of its texts one after the other."""
        if self._tokenizer.chat_template is None:
            return tuple(self._tokenizer("\n".join(line.text for line in asked))["input_ids"])
        messages = [{"role": line.role, "content": line.text} for line in asked]
        chat = str(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        return tuple(self._tokenizer(chat, add_special_tokens=False)["input_ids"])

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Of what the model would have said, with its end. Raises InvalidOption where it has no token for that."""
        end = self._tokenizer.eos_token_id
        if end is None:
            raise InvalidOption("the tokenizer names no eos_token: answers would have no end", field="eos_token")
        return (*self._tokenizer(text, add_special_tokens=False)["input_ids"], int(end))

    def text(self, token_ids: Sequence[int]) -> str:
        """Of tokens."""
        return str(self._tokenizer.decode(list(token_ids)))

    @property
    def num_words(self) -> int:
        """Ids are below."""
        return 1 + max(int(number) for number in self._tokenizer.get_vocab().values())


def digest_of(token_ids: Sequence[int]) -> Digest:
    """SHA-256 of token ids as 32-bit little-endian numbers."""
    return hashlib.sha256(struct.pack(f"<{len(token_ids)}I", *token_ids)).hexdigest()
