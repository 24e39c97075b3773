"""A JSON body as it streams in: index lists go straight into 32-bit arrays, values into 64-bit ones, the rest is kept
as text.

Neither the body nor a Python object for each entry is ever held: a million indices take 4 MB. What is kept is the body
with `[]` in place of the lists, which msgspec then checks as any other JSON.
"""

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidMatrix, LimitExceeded
from sparsesmith.matrix.pattern import MAX_NNZ

PIECE_BYTES = 64 * 1024
"""Parsed at a time: about 1 ms, after which other threads get their turn. Between a number and what follows it white
space may not be longer."""

MAX_TEXT_BYTES = 2**20
"""Of a body without its index lists: a program of 65,536 characters, all escaped, and room."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^"\[\]{}:,]+', re.DOTALL)
_ENTRY = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|\[[^\]]*\]|\{[^}]*\}|[^,\]]+)', re.DOTALL)
_WHOLE_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_MAX_SHOWN = 60
_MAX_NUMBER_BYTES = 400
"""Of one value: no float64 needs more digits to be exact than a value may have here."""


@dataclass(frozen=True)
class _Kind:
    """What a list holds."""

    typecode: Literal["i", "d"]
    item: type
    bytes_between: bytes
    """All that may stand between the brackets."""
    is_entry: Callable[[bytes], bool]
    limit: str


class BodyStream:
    """Fed with a body piece by piece.

    `members` are the lists of whole numbers of the object `parent` that are taken out, `value_members` those of
    numbers. Raises InvalidMatrix for an entry that is none (naming it), LimitExceeded for a list of more than
    `max_indices` entries or a rest that is too long.
    """

    def __init__(
        self, parent: str, members: Sequence[str], max_indices: int, value_members: Sequence[str] = ()
    ) -> None:
        self._parent = parent
        self._kinds = dict.fromkeys(members, _INDICES) | dict.fromkeys(value_members, _VALUES)
        self._max_indices = max_indices
        self._text = bytearray()
        self._pending = b""
        self._names: list[str | None] = []
        """The member that is being read in each open object; None in a list."""
        self._string = b""
        self._list: _NumberList | None = None
        self._lists: dict[str, _NumberList] = {}

    def feed(self, chunk: bytes) -> None:
        pending = self._pending + chunk
        position = 0
        while position < len(pending):
            if self._list is not None:
                after = self._list.read(pending, position)
                if self._list.is_complete:
                    self._text += b"[]"
                    self._list = None
            else:
                after = self._read_token(pending, position)
            if after == position:
                break
            position = after
        self._pending = pending[position:]
        if len(self._text) + (0 if self._list else len(self._pending)) > MAX_TEXT_BYTES:
            raise LimitExceeded(
                f"the body has more than {MAX_TEXT_BYTES} bytes beside its index lists",
                field="body",
                value=f"{MAX_TEXT_BYTES} bytes or more",
                limit=MAX_TEXT_BYTES,
            )

    def finish(self) -> tuple[bytearray, Mapping[str, npt.NDArray[Any]]]:
        """The body with `[]` for each list that was taken out, and the lists by name, shape [number of entries]:
        int32 of `members`, float64 of `value_members`."""
        # What is incomplete is left for the JSON parser to find.
        self._text += self._pending
        return self._text, {name: entries.array() for name, entries in self._lists.items()}

    def _read_token(self, pending: bytes, position: int) -> int:
        match = _TOKEN.match(pending, position)
        if match is None:  # A string whose end has not come.
            return position
        token = match.group()
        if token == b"[" and self._is_index_list():
            self._begin_list()
        else:
            self._text += token
            self._follow(token)
        return match.end()

    def _follow(self, token: bytes) -> None:
        """Keeps track of where in the body we are."""
        match token[:1]:
            case b"{":
                self._names.append("")
            case b"[":
                self._names.append(None)
            case b"}" | b"]":
                del self._names[-1:]
            case b'"':
                self._string = token
            case b":" if self._names and self._names[-1] is not None and len(self._names) <= 2:
                self._names[-1] = _decoded(self._string)

    def _is_index_list(self) -> bool:
        return len(self._names) == 2 and self._names[0] == self._parent and self._names[1] in self._kinds

    def _begin_list(self) -> None:
        name = str(self._names[1])
        field = f"{self._parent}.{name}"
        if name in self._lists:
            raise InvalidMatrix(f"{field}: given twice", field=field, limit="one list")
        self._list = self._lists[name] = _NumberList(field, self._max_indices, self._kinds[name])


class _NumberList:
    """One list, from behind its opening bracket."""

    def __init__(self, field: str, max_indices: int, kind: _Kind) -> None:
        self._field = field
        self._max_indices = max_indices
        self._kind = kind
        self._entries: array[Any] = array(kind.typecode)
        self.is_complete = False

    def array(self) -> npt.NDArray[Any]:
        return np.frombuffer(self._entries, np.int32 if self._kind.typecode == "i" else np.float64)

    def read(self, text: bytes, start: int) -> int:
        """Takes entries from a position on; how far it came. The last entry waits until its end has come."""
        limit = min(len(text), start + PIECE_BYTES)
        end = text.find(b"]", start, limit)
        stop = end if end >= 0 else text.rfind(b",", start, limit)
        if not text[start:limit].strip():
            return limit
        if stop < 0:
            if limit - start == PIECE_BYTES or text[start:limit].translate(None, self._kind.bytes_between):
                raise self._refusal(text, start)
            return start
        piece = text[start:stop]
        if piece.translate(None, self._kind.bytes_between):
            raise self._refusal(text, start)
        if piece.strip():
            self._append(piece, text, start)
        elif end < 0 or self._entries:  # Nothing before a comma, or between a comma and the end.
            raise self._refusal(text, start)
        self.is_complete = end >= 0
        return stop + 1

    def _append(self, piece: bytes, text: bytes, start: int) -> None:
        num_before = len(self._entries)
        try:
            self._entries.extend(msgspec.json.decode(b"[%b]" % piece, type=self._kind.item))
        except (msgspec.DecodeError, OverflowError):
            del self._entries[num_before:]
            raise self._refusal(text, start) from None
        if len(self._entries) > self._max_indices:
            raise LimitExceeded(
                f"{self._field} has more than {self._max_indices} entries; upload larger matrices as a file",
                field=self._field,
                value=f"{len(self._entries)} or more",
                limit=self._max_indices,
            )

    def _refusal(self, text: bytes, start: int) -> InvalidMatrix:
        """Names the first entry from a position on that is not accepted."""
        index = len(self._entries)
        while (match := _ENTRY.match(text, start)) and self._kind.is_entry(match.group(1).rstrip()):
            start = match.end() + 1
            index += 1
        shown = match.group(1).rstrip()[:_MAX_SHOWN].decode(errors="replace") if match else ""
        name = f"{self._field}[{index}]"
        limit = self._kind.limit
        return InvalidMatrix(f"{name} is {shown or 'empty'}: must be a {limit}", field=name, value=shown, limit=limit)


def _is_index(entry: bytes) -> bool:
    """Whether it is a whole number that the array holds. Negative ones wait until the shape is known."""
    return _WHOLE_NUMBER.fullmatch(entry) is not None and len(entry) < 12 and abs(int(entry)) < MAX_NNZ


def _is_value(entry: bytes) -> bool:
    """Whether it is a number that float64 holds."""
    return len(entry) <= _MAX_NUMBER_BYTES and _NUMBER.fullmatch(entry) is not None and math.isfinite(float(entry))


_INDICES = _Kind("i", list[int], b"0123456789-, \t\r\n", _is_index, f"whole number from 0 to {MAX_NNZ - 1}")
_VALUES = _Kind("d", list[float], b"0123456789-+.eE, \t\r\n", _is_value, "finite number")


def _decoded(string: bytes) -> str:
    try:
        return msgspec.json.decode(string, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
