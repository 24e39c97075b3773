"""Matrix Market coordinate files. The format: Boisvert, Pozo, Remington, NISTIR 5935 (1996).

Banner and size line are read and checked here; the entries by NumPy's text reader, which names the row of a bad one.
"""

import codecs
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.limits import MatrixLimits, check_finite, check_limit, check_shape

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern", "complex")
"""Of the format, and what SciPy (`unsigned-integer`) and older writers (`double`) put in their place."""
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")

_BANNER = re.compile(rb"%%MatrixMarket\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*", re.IGNORECASE)
_SIZES = re.compile(rb"\s*([0-9]{1,18})\s+([0-9]{1,18})\s+([0-9]{1,18})\s*")
_WRONG_COLUMNS = re.compile(r"requires (\d+) columns but (\d+) were found at row (\d+)")
_ENTRIES_AT_A_TIME = 1 << 18
"""Bounds the memory of records that are not yet index arrays."""
_MAX_LINE_BYTES = 1 << 16
_MAX_COMMENT_LINES = 1 << 16
_LEAST_ENTRY_BYTES = 4
"""`1 1` and a line break."""


_VALUE_COLUMNS: dict[str, list[tuple[str, type]]] = {
    "pattern": [],
    "complex": [("real", np.float64), ("imaginary", np.float64)],
}
"""Columns after the indices, where they are not one real value."""


@dataclass(frozen=True)
class Header:
    """Banner and size line."""

    field: str
    symmetry: str
    num_rows: int
    num_cols: int
    num_entries: int

    @property
    def has_real_values(self) -> bool:
        return self.field not in ("pattern", "complex")


def read_matrix_market(
    open_stream: Callable[[], IO[bytes]], num_bytes: int, limits: MatrixLimits, *, keeps_values: bool = True
) -> "tuple[scipy.sparse.coo_matrix, bool]":
    """The expanded matrix, duplicates kept, and whether it has its values: where they are not real, or not to be kept,
    it has 8-bit ones.

    `open_stream` gives the text of `num_bytes` from its start. Raises InvalidMatrix, LimitExceeded.
    """
    with open_stream() as stream:
        header = read_header(stream)
        _check_header(header, num_bytes, limits)
        has_values = header.has_real_values and keeps_values
        coo = _read_entries(stream, header, has_values)
    check_limit("nnz", int(coo.nnz), limits.max_nnz)
    return coo, has_values


def read_header(stream: IO[bytes]) -> Header:
    """Raises InvalidMatrix for a banner or a size line that is missing, malformed or not supported."""
    banner = _BANNER.fullmatch(_read_line(stream).removeprefix(codecs.BOM_UTF8))
    if banner is None:
        raise InvalidMatrix(
            "file: line 1 is not a Matrix Market banner",
            field="banner",
            limit="%%MatrixMarket matrix coordinate FIELD SYMMETRY",
        )
    kind, layout, field, symmetry = (word.decode("ascii", "replace").lower() for word in banner.groups())
    _check_word("object", kind, ("matrix",))
    _check_word("format", layout, ("coordinate",))
    _check_word("field", field, FIELDS)
    _check_word("symmetry", symmetry, SYMMETRIES)
    return Header(field, symmetry, *_read_sizes(_first_line_of_data(stream)))


def _first_line_of_data(stream: IO[bytes]) -> bytes:
    for _ in range(_MAX_COMMENT_LINES):
        line = _read_line(stream)
        if not line:
            raise InvalidMatrix("file: it ends before its size line", field="size line", limit="rows cols entries")
        if line.strip() and not line.lstrip().startswith(b"%"):
            return line
    raise InvalidMatrix(
        f"file: more than {_MAX_COMMENT_LINES} lines of comment", field="comments", limit=_MAX_COMMENT_LINES
    )


def _read_line(stream: IO[bytes]) -> bytes:
    line = stream.readline(_MAX_LINE_BYTES)
    if len(line) == _MAX_LINE_BYTES:
        raise InvalidMatrix(
            f"file: a header line is longer than {_MAX_LINE_BYTES} bytes", field="header", limit=_MAX_LINE_BYTES
        )
    return line


def _check_word(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        limit = ", ".join(known)
        raise InvalidMatrix(
            f"file: Matrix Market {what} {word!r} is not supported ({limit})", field=what, value=word, limit=limit
        )


def _read_sizes(line: bytes) -> tuple[int, int, int]:
    sizes = _SIZES.fullmatch(line)
    if sizes is None:
        shown = line[:80].decode("ascii", "replace").strip()
        raise InvalidMatrix(
            f"file: the size line {shown!r} is not `rows cols entries`",
            field="size line",
            value=shown,
            limit="rows cols entries",
        )
    return int(sizes[1]), int(sizes[2]), int(sizes[3])


def _check_header(header: Header, num_bytes: int, limits: MatrixLimits) -> None:
    check_shape(header.num_rows, header.num_cols, header.num_entries, limits)
    if header.symmetry != "general" and header.num_rows != header.num_cols:
        raise InvalidMatrix(
            f"file: a {header.symmetry} matrix is square, this one is {header.num_rows} x {header.num_cols}",
            field="symmetry",
            value=header.symmetry,
            limit="a square matrix",
        )
    # Before memory for the entries is taken: the size line may say anything. The last line break may be missing.
    if header.num_entries * _LEAST_ENTRY_BYTES > num_bytes + 1:
        raise InvalidMatrix(
            f"file: the size line announces {header.num_entries} entries, {num_bytes} bytes cannot hold them",
            field="entries",
            value=header.num_entries,
            limit=num_bytes // _LEAST_ENTRY_BYTES,
        )


def _read_entries(stream: IO[bytes], header: Header, keeps_values: bool) -> scipy.sparse.coo_matrix:
    """Entries with the mirrored ones behind them. `stream` stands after the size line.

    NumPy's reader, not SciPy's faster one: that one ends the process on some damaged files.
    """
    rows, cols = (np.empty(header.num_entries, np.int32) for _ in range(2))
    values = np.empty(header.num_entries, np.float64) if keeps_values else np.ones(header.num_entries, np.int8)
    lines, read = iter(stream), 0
    while (part := _read_part(lines, header, read)).size:
        end = read + part.size
        if end > header.num_entries:
            raise _wrong_count(header, "more")
        rows[read:end] = _zero_based(part["row"], "row", header.num_rows, read)
        cols[read:end] = _zero_based(part["col"], "column", header.num_cols, read)
        if header.has_real_values:
            check_finite(part["value"], "entry", first=read + 1)
        if keeps_values:
            values[read:end] = part["value"]
        read = end
    if read < header.num_entries:
        raise _wrong_count(header, str(read))
    if header.symmetry != "general":
        off = np.flatnonzero(rows != cols)
        mirrored = -values[off] if header.symmetry == "skew-symmetric" else values[off]
        rows, cols = np.concatenate([rows, cols[off]]), np.concatenate([cols, rows[off]])
        values = np.concatenate([values, mirrored])
    return scipy.sparse.coo_matrix((values, (rows, cols)), shape=(header.num_rows, header.num_cols))


def _read_part(lines: Iterator[bytes], header: Header, num_before: int) -> npt.NDArray[np.void]:
    """The next entries as records; none at the end of the file."""
    columns = [("row", np.int64), ("col", np.int64), *_VALUE_COLUMNS.get(header.field, [("value", np.float64)])]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no entries: counted by the caller
            return np.loadtxt(
                lines, dtype=columns, comments="%", ndmin=1, max_rows=_ENTRIES_AT_A_TIME, encoding="latin1"
            )
    except (ValueError, OverflowError) as error:
        raise InvalidMatrix(f"file: {_in_entries(str(error), num_before)}", field="entries") from error


def _in_entries(message: str, num_before: int) -> str:
    """NumPy's complaint with entries counted from 1 (it counts rows from 0, but from 1 where columns are missing)."""
    columns = _WRONG_COLUMNS.search(message)
    if columns is not None:
        return f"entry {num_before + int(columns[3])} has {columns[2]} columns instead of {columns[1]}"
    return re.sub(r"at row (\d+)", lambda row: f"at entry {num_before + int(row[1]) + 1}", message)


def _wrong_count(header: Header, found: str) -> InvalidMatrix:
    return InvalidMatrix(
        f"file: the size line announces {header.num_entries} entries, the file has {found}",
        field="entries",
        value=found,
        limit=header.num_entries,
    )


def _zero_based(indices: npt.NDArray[np.int64], what: str, extent: int, num_before: int) -> npt.NDArray[np.int32]:
    bad = np.flatnonzero((indices < 1) | (indices > extent))
    if bad.size:
        entry = num_before + int(bad[0]) + 1
        raise InvalidMatrix(
            f"file: {what} index {indices[bad[0]]} of entry {entry} is out of bounds: must be from 1 to {extent}",
            field=f"entry {entry}",
            value=indices[bad[0]],
            limit=f"1..{extent}",
        )
    return (indices - 1).astype(np.int32)
