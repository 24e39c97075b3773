"""SciPy's .npz files (`scipy.sparse.save_npz`), read without trust: no pickles, sizes before memory, indices checked.

`scipy.sparse.load_npz` builds matrices from indices that nobody looked at; converting one can end the process.
"""

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.limits import MatrixLimits, check_finite, check_limit, check_shape
from sparsesmith.matrix.pattern import MAX_NNZ

Arrays = Mapping[str, npt.NDArray[np.generic]]

MAX_MEMBERS = 16
MAX_DIMENSIONS = 3
"""Blocks of `bsr` have three."""
MAX_EXTENT = MAX_NNZ + 1
_MAX_MEMBER_HEADER_BYTES = 10_000
_HEADER_ERRORS = (
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)
"""What NumPy's reader of headers, which is Python's parser of literals, raises for hostile ones."""
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    IndexError,
)
"""What Python's reader of archives raises for damaged ones."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What NumPy writes. A few bytes of LZMA's take gigabytes for a dictionary."""
_MAX_NAME_BYTES = 64
"""Of a format."""
_CHUNK_BYTES = 1 << 20
_MEMBERS = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "bsr": ("indptr", "indices", "data"),
    "coo": ("row", "col", "data"),
    "dia": ("offsets", "data"),
}

_DATA_DIMENSIONS = {"dia": 2, "bsr": 3}
"""Where they are not one."""


def read_npz_matrix(
    stream: IO[bytes], limits: MatrixLimits, *, keeps_values: bool = True
) -> "tuple[scipy.sparse.spmatrix, bool]":
    """The matrix, duplicates kept, and whether it has its values: where they are not real, or not to be kept, it has
    8-bit ones.

    Raises InvalidMatrix, LimitExceeded.
    """
    arrays = dict(read_arrays(stream, limits))
    name = _format_name(arrays)
    missing = [member for member in (*_MEMBERS[name], "shape") if member not in arrays]
    if missing:
        raise InvalidMatrix(f"file: {name} matrix without {missing[0]}.npy", field=missing[0])
    num_rows, num_cols = _shape(arrays["shape"])
    data = arrays.pop("data")
    if data.ndim != _DATA_DIMENSIONS.get(name, 1):
        limit = f"{_DATA_DIMENSIONS.get(name, 1)} dimensions"
        raise InvalidMatrix(
            f"data: shape {data.shape}: {name} has {limit}", field="data", value=data.shape, limit=limit
        )
    check_shape(num_rows, num_cols, data.size, limits)
    has_real_values = data.dtype.kind in "iuf"
    if has_real_values:
        check_finite(data, "data: entry", first=0)
    elif data.dtype.kind not in "bc":
        raise InvalidMatrix(f"data has the type {data.dtype}", field="data", value=str(data.dtype), limit="numbers")
    has_values = has_real_values and keeps_values
    # A stored zero of `dia` is padding.
    numbers = data.astype(np.float64, copy=False) if has_values else _ones(data, where_nonzero=name == "dia")
    del data
    return _checked_matrix(name, {**arrays, "data": numbers}, (num_rows, num_cols)), has_values


def _ones(data: npt.NDArray[np.generic], *, where_nonzero: bool) -> npt.NDArray[np.int8]:
    return (data != 0).astype(np.int8) if where_nonzero else np.ones(data.shape, np.int8)


def read_arrays(stream: IO[bytes], limits: MatrixLimits) -> Arrays:
    """The arrays of an .npz file by name. Raises InvalidMatrix for damage and pickles, LimitExceeded for size."""
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            check_limit("members of the archive", len(members), MAX_MEMBERS)
            announced = sum(member.file_size for member in members)
            check_limit("decompressed size in bytes", announced, limits.max_decompressed_bytes)
            return {member.filename.removesuffix(".npy"): _read_array(archive, member, limits) for member in members}
    except _ARCHIVE_ERRORS as error:
        raise InvalidMatrix(f"file: damaged .npz: {error}", field="file") from error


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: MatrixLimits) -> npt.NDArray[np.generic]:
    if member.compress_type not in _COMPRESSIONS:
        raise InvalidMatrix(
            f"{member.filename}: compressed by method {member.compress_type}, only deflate is read",
            field=member.filename,
            value=member.compress_type,
            limit="stored, deflate",
        )
    with archive.open(member) as stream:
        shape, fortran_order, dtype = _read_array_header(stream, member.filename)
        if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
            raise InvalidMatrix(
                f"{member.filename}: arrays of {dtype} are not read", field=member.filename, value=str(dtype)
            )
        count = math.prod(shape)
        num_bytes = count * dtype.itemsize
        if num_bytes > member.file_size:
            raise InvalidMatrix(
                f"{member.filename}: {count} values announced, {member.file_size} bytes cannot hold them",
                field=member.filename,
                value=count,
            )
        check_limit(f"{member.filename}: values", count, max(limits.max_nnz, limits.max_rows + 1))
        # A read is bounded by the size that the archive announces, whatever the compressed data holds.
        content = np.empty(num_bytes, np.uint8)
        for start in range(0, num_bytes, _CHUNK_BYTES):
            piece = stream.read(min(_CHUNK_BYTES, num_bytes - start))
            if len(piece) < min(_CHUNK_BYTES, num_bytes - start):
                raise InvalidMatrix(f"{member.filename}: it ends too early", field=member.filename)
            content[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
    return content.view(dtype).reshape(shape, order="F" if fortran_order else "C")


def _read_array_header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
        shape, fortran_order, dtype = readers[version](stream, max_header_size=_MAX_MEMBER_HEADER_BYTES)
    except _HEADER_ERRORS as error:
        raise InvalidMatrix(f"{name}: not a NumPy array: {error}", field=name) from error
    if len(shape) > MAX_DIMENSIONS or not all(type(extent) is int and 0 <= extent <= MAX_EXTENT for extent in shape):
        shown = str(shape) if len(shape) <= MAX_DIMENSIONS else f"{len(shape)} dimensions"
        limit = f"at most {MAX_DIMENSIONS} whole numbers from 0 to {MAX_EXTENT}"
        raise InvalidMatrix(f"{name}: shape {shown}: must be {limit}", field=name, value=shown, limit=limit)
    return shape, fortran_order, dtype


def _format_name(arrays: Arrays) -> str:
    stored = arrays.get("format")
    name = "" if stored is None else _text(stored)
    if name not in _MEMBERS:
        known = ", ".join(_MEMBERS)
        raise InvalidMatrix(
            f"file: format {name!r} is not a sparse format of SciPy ({known})", field="format", value=name, limit=known
        )
    return name


def _text(stored: npt.NDArray[np.generic]) -> str:
    """Of an array of one short text; nothing of others. What is no character counts as an unknown one: NumPy itself
    trips over numbers beyond the last character, and JSON over halves of a pair."""
    if stored.size != 1 or stored.dtype.itemsize > _MAX_NAME_BYTES:
        return ""
    encodings = {"S": "ascii", "U": "utf-32-be" if stored.dtype.byteorder == ">" else "utf-32-le"}
    encoding = encodings.get(stored.dtype.kind)
    return "" if encoding is None else stored.tobytes().decode(encoding, "replace").rstrip("\0")


def _shape(stored: npt.NDArray[np.generic]) -> tuple[int, int]:
    if stored.shape != (2,) or stored.dtype.kind not in "iu":
        raise InvalidMatrix("shape: expected two whole numbers", field="shape", limit="two whole numbers")
    num_rows, num_cols = (int(extent) for extent in stored)
    return num_rows, num_cols


def _checked_matrix(name: str, arrays: Arrays, shape: tuple[int, int]) -> scipy.sparse.spmatrix:
    *indices, data = (arrays[member] for member in _MEMBERS[name])
    for member, array in zip(_MEMBERS[name], indices, strict=False):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidMatrix(f"{member}: expected a list of whole numbers", field=member, value=str(array.dtype))
    try:
        match name:
            case "coo":
                return scipy.sparse.coo_matrix((data, tuple(indices)), shape=shape)
            case "dia":
                _check_offsets(indices[0])
                return scipy.sparse.dia_matrix((data, indices[0]), shape=shape).tocoo()
        build = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix, "bsr": scipy.sparse.bsr_matrix}[name]
        compressed = build((data, indices[1], indices[0]), shape=shape)
        if name == "bsr":
            _check_blocks(shape, compressed.blocksize)
        compressed.check_format(full_check=True)
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidMatrix(f"file: {error}", field="file") from error
    return compressed


def _check_offsets(offsets: npt.NDArray[np.generic]) -> None:
    """SciPy cuts larger ones to 32 bits. Raises InvalidMatrix."""
    wide = offsets.astype(np.float64)
    bad = np.flatnonzero(np.abs(wide) > MAX_NNZ)
    if bad.size:
        value = offsets[bad[0]]
        raise InvalidMatrix(
            f"offsets: diagonal {value} lies outside -{MAX_NNZ}..{MAX_NNZ}",
            field="offsets",
            value=value,
            limit=f"-{MAX_NNZ}..{MAX_NNZ}",
        )


def _check_blocks(shape: tuple[int, int], block: tuple[int, int]) -> None:
    """SciPy accepts what its conversions then fail on. Raises InvalidMatrix."""
    if 0 in block or shape[0] % block[0] or shape[1] % block[1]:
        raise InvalidMatrix(
            f"data: blocks of {block[0]} x {block[1]} do not divide a matrix of {shape[0]} x {shape[1]}",
            field="data",
            value=f"{block[0]} x {block[1]}",
            limit="a block shape that divides the matrix",
        )
