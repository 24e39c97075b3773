"""Index lists of a JSON body straight into arrays: no Python object an index, no long hold of the interpreter lock.

The JSON itself was checked before: msgspec validates a `Raw` value's syntax while it skips it. So a list that holds
nothing but digits, signs, commas and white space is a list of whole numbers.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidMatrix, LimitExceeded

CHUNK_BYTES = 256 * 1024
"""Parsed at a time: about 3 ms, after which other threads get their turn."""

_WHOLE_NUMBER_BYTES = b"0123456789-, \t\r\n"


def parse_index_list(raw: msgspec.Raw, field: str, max_indices: int) -> npt.NDArray[np.int64]:
    """The indices of a JSON list, shape [number of indices].

    Raises InvalidMatrix where it is no list of whole numbers (naming the first that is not one), LimitExceeded where it
    is longer than `max_indices`.
    """
    text = memoryview(raw).cast("B")
    if bytes(text[:1]) != b"[":
        raise InvalidMatrix(f"{field}: expected a list of whole numbers", field=field, limit="a list of whole numbers")
    chunks: list[npt.NDArray[np.int64]] = []
    num_indices = 0
    for chunk in _chunks(text[1:-1]):
        if chunk.translate(None, _WHOLE_NUMBER_BYTES):
            raise _not_whole(raw, field)
        chunks.append(_parse(chunk))
        num_indices += chunks[-1].size
        if num_indices > max_indices:
            raise LimitExceeded(
                f"{field} has more than {max_indices} entries; upload larger matrices as a file",
                field=field,
                value=f"{num_indices} or more",
                limit=max_indices,
            )
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def _chunks(text: memoryview) -> Iterator[bytes]:
    """Pieces of about CHUNK_BYTES that end at a comma, the comma left out."""
    start = 0
    while start < len(text):
        piece = bytes(text[start : start + CHUNK_BYTES])
        if start + len(piece) < len(text):
            cut = piece.rfind(b",")
            # No number is that long: where there is no comma it is white space or one giant literal, taken whole.
            piece = piece[:cut] if cut >= 0 else bytes(text[start:])
        yield piece
        start += len(piece) + 1


def _parse(chunk: bytes) -> npt.NDArray[np.int64]:
    if not chunk.strip():
        return np.empty(0, np.int64)
    return np.fromstring(chunk, dtype=np.int64, sep=",")


def _not_whole(raw: msgspec.Raw, field: str) -> InvalidMatrix:
    """Decode once more, slowly, to name the entry."""
    for position, entry in enumerate(msgspec.json.decode(raw, type=list[msgspec.Raw])):
        text = bytes(entry).decode(errors="replace")
        if not text.lstrip("-").isdecimal():
            name = f"{field}[{position}]"
            return InvalidMatrix(f"{name} is {text[:60]}: must be a whole number", field=name, value=text[:60])
    return InvalidMatrix(f"{field}: expected a list of whole numbers", field=field)
