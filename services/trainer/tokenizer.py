"""The policy's tokenizer: byte-level BPE in two stages, so that program idioms are few tokens.

Stage one learns words of code (identifiers, punctuation, numbers, line breaks with their indentation) from the corpus.
Stage two goes on merging inside lines of kernel programs, across words, as SuperBPE does (Liu et al. 2025):
` = blockIdx.x * blockDim.x + threadIdx.x;` becomes one token. Numbers never merge with anything, so that a literal such
as 256 is one token of its own wherever it stands.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, BOS, EOS, PARENT, REPORT = "<pad>", "<bos>", "<eos>", "<parent>", "<report>"
SPECIAL_TOKENS = (PAD, BOS, EOS, PARENT, REPORT, *(f"<reserved_{number}>" for number in range(11)))
"""Ids 0 to 15. `<bos>` begins a program; `<parent>` and `<report>` begin the parts of a refinement prompt."""
PAD_ID, BOS_ID, EOS_ID = (SPECIAL_TOKENS.index(token) for token in (PAD, BOS, EOS))

_WORDS = r"\d{1,5}|\n[ ]*| ?[A-Za-z_]+| ?[^\sA-Za-z0-9_]+|\s+"
_LINES = r"\d{1,5}|\n[ ]*|[^\d\n]+"
_NUMBER_OR_BREAK = re.compile(r"\d+|\n *")


@dataclass(frozen=True)
class TokenizerSize:
    """How the vocabulary is divided."""

    vocabulary: int = 8192
    phrases: int = 1200
    """Of these, tokens that span words (stage two)."""
    phrase_characters: int = 40
    """Longest phrase: a whole statement as one token would leave the policy nothing to compose."""


def train_tokenizer(texts: Iterable[str], programs: Sequence[str], size: TokenizerSize) -> Tokenizer:
    """Learns words from `texts` and `programs`, then phrases from `programs` alone.

    Fewer tokens than `size.vocabulary` come out where the programs hold too few repeated phrases.
    """
    words = _train_words(texts, programs, size.vocabulary - size.phrases)
    return _with_phrases(words, _learn_phrases(words, programs, size))


def with_more_phrases(tokenizer: Tokenizer, programs: Sequence[str], size: TokenizerSize) -> Tokenizer:
    """The tokenizer with up to `size.phrases` further phrases behind its own: what those do not occur in is cut into
    tokens as before, and each token keeps its number."""
    return _with_phrases(tokenizer, _learn_phrases(tokenizer, programs, size))


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json."""
    return Tokenizer.from_file(str(path))


def encode_program(tokenizer: Tokenizer, program: str) -> list[int]:
    """Token ids of a program with `<eos>`, without `<bos>`."""
    return [*tokenizer.encode(program, add_special_tokens=False).ids, EOS_ID]


def decode_program(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """The text of sampled tokens up to `<eos>`."""
    ids = list(token_ids)
    program: str = tokenizer.decode(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids, skip_special_tokens=True)
    return program


def _train_words(texts: Iterable[str], programs: Sequence[str], vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _split(_WORDS)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        max_token_length=32,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_chain(texts, programs), trainer)
    return tokenizer


def _chain(texts: Iterable[str], programs: Iterable[str]) -> Iterator[str]:
    yield from texts
    yield from programs


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


Pair = tuple[str, str]


def _learn_phrases(words: Tokenizer, programs: Sequence[str], size: TokenizerSize) -> list[Pair]:
    """Byte-pair merges over the word tokens of program lines, most frequent pair first."""
    lines = _line_counts(words, programs)
    merges: list[Pair] = []
    taken = set(words.get_vocab())
    while len(merges) < size.phrases:
        pairs: Counter[Pair] = Counter()
        for line, times in lines.items():
            for pair in pairwise(line):
                pairs[pair] += times
        best = _best(pairs, taken, size.phrase_characters)
        if best is None:
            break
        merges.append(best)
        taken.add("".join(best))
        lines = _merge_everywhere(lines, best)
    return merges


def _best(pairs: Counter[Pair], taken: set[str], longest: int) -> Pair | None:
    candidates = [
        (times, pair)
        for pair, times in pairs.items()
        if times > 1 and len("".join(pair)) <= longest and "".join(pair) not in taken
    ]
    return max(candidates)[1] if candidates else None


def _line_counts(words: Tokenizer, programs: Sequence[str]) -> Counter[tuple[str, ...]]:
    pieces: Counter[str] = Counter()
    for program in programs:
        pieces.update(piece for piece in _NUMBER_OR_BREAK.split(program) if piece)
    lines: Counter[tuple[str, ...]] = Counter()
    for piece, times in pieces.items():
        lines[tuple(words.encode(piece, add_special_tokens=False).tokens)] += times
    return lines


def _merge_everywhere(lines: Counter[tuple[str, ...]], pair: Pair) -> Counter[tuple[str, ...]]:
    merged: Counter[tuple[str, ...]] = Counter()
    for line, times in lines.items():
        merged[_merge(line, pair) if pair[0] in line else line] += times
    return merged


def _merge(line: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    result: list[str] = []
    position = 0
    while position < len(line):
        if line[position : position + 2] == pair:
            result.append("".join(pair))
            position += 2
        else:
            result.append(line[position])
            position += 1
    return tuple(result)


def _with_phrases(words: Tokenizer, phrases: Sequence[Pair]) -> Tokenizer:
    """The same tokenizer with further merges, splitting at lines and numbers only."""
    state = json.loads(words.to_str())
    vocabulary: dict[str, int] = state["model"]["vocab"]
    _append(vocabulary, state["model"]["merges"], phrases)
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.pre_tokenizer = _split(_LINES)
    return tokenizer


def _append(vocabulary: dict[str, int], merges: list[list[str]], phrases: Sequence[Pair]) -> None:
    for pair in phrases:
        vocabulary["".join(pair)] = len(vocabulary)
        merges.append(list(pair))
