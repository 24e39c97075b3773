"""The pretraining corpus: device code from folders of source, cleaned, without duplicates, split by file.

Any team can point this at its own kernels: `read_folder` takes a directory, `read_jsonl` a packed collection.
It does not judge licences; it carries the licence that it was told, and `allowed_licences` filters on it.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
from datasketch import MinHash, MinHashLSH  # type: ignore[import-untyped, unused-ignore]

from services.trainer.offline.text_files import open_text

SOURCE_SUFFIXES = frozenset(
    {".cu", ".cuh", ".cuf", ".h", ".hpp", ".hxx", ".hip", ".inl", ".inc", ".c", ".cc", ".cpp", ".cxx", ".py", ".jinja"}
)

_DEVICE_MARK = re.compile(
    r"__global__|__device__|__host__|__shared__|threadIdx|blockIdx|blockDim|__syncthreads|__shfl|hipThread"
    r"|_DEVICE|cuda_runtime|hip_runtime|cudaStream|hipStream|KERNEL"
)
_LEADING_COMMENT = re.compile(
    r"\s*(?:/\*.*?\*/|(?://[^\n]*\n\s*)+|(?:#(?!include|pragma|if|def|und)[^\n]*\n\s*)+)", re.S
)
_LEGAL_WORDS = re.compile(r"copyright|licen[sc]e|permission|SPDX", re.I)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class SourceFile:
    """One file and where it comes from."""

    source: str
    """Package or team."""
    path: str
    licence: str
    """As stated by whoever supplied the file; `unknown` where nobody did."""
    text: str


@dataclass(frozen=True)
class CorpusFilter:
    """Which files are worth training on."""

    min_characters: int = 200
    max_characters: int = 160_000
    """Longer files are mostly tables or generated instantiations."""
    max_mean_line: int = 160
    """Characters a line, on average."""
    min_ascii_share: float = 0.97
    device_code_only: bool = True
    allowed_licences: frozenset[str] | None = None
    """None: all."""

    def refusal(self, file: SourceFile) -> str | None:
        """Why a (cleaned) file is left out; None to keep it."""
        text = file.text
        if self.allowed_licences is not None and file.licence not in self.allowed_licences:
            return "licence"
        if not self.min_characters <= len(text) <= self.max_characters:
            return "size"
        if len(text) > self.max_mean_line * (text.count("\n") + 1):
            return "long lines"
        if sum(map(text.count, "\x00\ufffd")) or len(text) * self.min_ascii_share > len(text.encode("ascii", "ignore")):
            return "characters"
        if self.device_code_only and not _DEVICE_MARK.search(text):
            return "no device code"
        return None


@dataclass(frozen=True)
class Corpus:
    """Files to train on, files held out, and how many were left out for each reason."""

    train: tuple[SourceFile, ...]
    held_out: tuple[SourceFile, ...]
    left_out: Mapping[str, int]


def read_folder(folder: Path, source: str, licence: str = "unknown") -> Iterator[SourceFile]:
    """Every source file below a folder, in path order. Bytes that are not UTF-8 become U+FFFD and are filtered out."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in SOURCE_SUFFIXES and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield SourceFile(source, path.relative_to(folder).as_posix(), licence, text)


def read_jsonl(path: Path, licences: Mapping[str, str] | None = None) -> Iterator[SourceFile]:
    """Files packed one JSON object a line (`src`, `path`, `text`, optionally `licence`), plain or .xz."""
    with open_text(path, "r") as lines:
        for line in lines:
            record = json.loads(line)
            licence = record.get("licence") or (licences or {}).get(record["src"], "unknown")
            yield SourceFile(record["src"], record["path"], licence, record["text"])


def build_corpus(
    files: Iterable[SourceFile],
    rules: CorpusFilter,
    *,
    held_out_share: float = 0.02,
    duplicate_similarity: float = 0.8,
) -> Corpus:
    """Clean, filter, drop exact and near duplicates, then hold out a share of the files chosen by content hash."""
    left_out: Counter[str] = Counter()
    kept: list[SourceFile] = []
    for file in files:
        cleaned = replace(file, text=clean(file.text))
        reason = rules.refusal(cleaned)
        if reason is None:
            kept.append(cleaned)
        else:
            left_out[reason] += 1
    unique = drop_duplicates(kept, duplicate_similarity)
    left_out["duplicate"] = len(kept) - len(unique)
    held_out = tuple(file for file in unique if _fraction_of(file.text) < held_out_share)
    train = tuple(file for file in unique if _fraction_of(file.text) >= held_out_share)
    return Corpus(train, held_out, dict(left_out))


def clean(text: str) -> str:
    """Unix line ends, tabs as two spaces, no trailing blanks, no leading licence comment, at most one empty line."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "  ").lstrip("\ufeff")
    while (comment := _LEADING_COMMENT.match(text)) and _LEGAL_WORDS.search(comment.group()):
        text = text[comment.end() :]
    text = re.sub(r"[ \f\v]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def drop_duplicates(files: Collection[SourceFile], similarity: float) -> list[SourceFile]:
    """Keeps the first of each set of files whose estimated Jaccard similarity of 5-word shingles exceeds the bound."""
    seen_texts: set[bytes] = set()
    index = MinHashLSH(threshold=similarity, num_perm=64)
    unique: list[SourceFile] = []
    for file in files:
        content = blake2b(" ".join(file.text.split()).encode()).digest()
        if content in seen_texts:
            continue
        seen_texts.add(content)
        sketch = _sketch(file.text)
        if index.query(sketch):
            continue
        index.insert(str(len(unique)), sketch)
        unique.append(file)
    return unique


def write_jsonl(path: Path, files: Iterable[SourceFile]) -> None:
    """The inverse of `read_jsonl`."""
    with open_text(path, "w") as out:
        for file in files:
            record = {"src": file.source, "path": file.path, "licence": file.licence, "text": file.text}
            out.write(json.dumps(record) + "\n")


def _shingles(text: str, width: int = 5) -> npt.NDArray[np.uint32]:
    """Distinct hashes of each run of `width` words."""
    words = np.array([zlib.crc32(word.encode()) for word in _WORD.findall(text)] or [0], dtype=np.uint64)
    words = np.pad(words, (0, max(0, width - words.size)))
    count = words.size - width + 1
    mixed = np.zeros(count, np.uint64)
    for offset in range(width):
        mixed = mixed * np.uint64(0x100000001B3) ^ words[offset : offset + count]
    return np.unique((mixed ^ (mixed >> np.uint64(29))).astype(np.uint32))


def _sketch(text: str) -> MinHash:
    sketch = MinHash(num_perm=64, seed=1, hashfunc=_as_is)
    sketch.update_batch(_shingles(text))
    return sketch


def _as_is(hashed: object) -> int:
    return int(cast(int, hashed))


def _fraction_of(text: str) -> float:
    """A number in [0, 1) that depends on the content alone."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6, person=b"held-out").digest(), "big") / 2**48
