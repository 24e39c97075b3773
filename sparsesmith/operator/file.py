"""A file of named sections, each with its checksum: what an operator is saved as. Little-endian throughout.

    0   8 bytes   SPSMOPER
    8   u32       version of this layout
    12  u32       number of sections
    16  u32       CRC-32 of the table
    20  u32       0
    24  the table, 64 bytes a section: name (40 bytes of ASCII, filled with zeros), u64 offset, u64 length, u32 CRC-32,
        u32 0
        the sections, each at a multiple of 256

The C library reads it, too. A reader leaves out sections that it does not know.
"""

import os
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from sparsesmith.errors import InvalidInput

MAGIC = b"SPSMOPER"
VERSION = 1
ALIGNMENT = 256
MAX_SECTIONS = 256

Sections = Mapping[str, bytes | memoryview]
"""Contents by name, in order."""

_HEAD = struct.Struct("<8sIIII")
_ENTRY = struct.Struct("<40sQQII")


def packed_sections(sections: Sections) -> bytes:
    """A file's bytes."""
    return b"".join(_pieces(sections))


def _pieces(sections: Sections) -> Iterator[bytes | memoryview]:
    table, offset = b"", _aligned(_HEAD.size + _ENTRY.size * len(sections))
    for name, content in sections.items():
        table += _ENTRY.pack(name.encode("ascii"), offset, len(content), zlib.crc32(content), 0)
        offset = _aligned(offset + len(content))
    yield (head := _HEAD.pack(MAGIC, VERSION, len(sections), zlib.crc32(table), 0) + table)
    written = len(head)
    for content in sections.values():
        yield b"\0" * (_aligned(written) - written)
        yield content
        written = _aligned(written) + len(content)


def write_sections(path: Path, sections: Sections) -> None:
    """Written beside and renamed: whoever reads meanwhile has the old file. Raises OSError."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(_pieces(sections))
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


def read_sections(path: Path) -> dict[str, memoryview]:
    """By name. Raises InvalidInput for what is no such file, is damaged, or of another version; OSError."""
    data = memoryview(path.read_bytes())
    if len(data) < _HEAD.size or bytes(data[:8]) != MAGIC:
        raise refused_file(path, "is no saved operator", "another file", "a file that Operator.save wrote")
    _, version, count, checksum, _ = _HEAD.unpack_from(data)
    if version != VERSION:
        raise refused_file(path, f"is of version {version}: this release reads {VERSION}", version, VERSION)
    table = data[_HEAD.size : _HEAD.size + count * _ENTRY.size]
    if count > MAX_SECTIONS or len(table) != count * _ENTRY.size or zlib.crc32(table) != checksum:
        raise damaged(path, "its table")
    return dict(_section(path, data, entry) for entry in _ENTRY.iter_unpack(table))


def damaged(path: Path, part: str) -> InvalidInput:
    """What is raised for a file that was one once."""
    return refused_file(path, f"is damaged: {part} is not what was written", part, "as it was written")


def refused_file(path: Path, reason: str, value: object, limit: object) -> InvalidInput:
    return InvalidInput(f"path: {path} {reason}", field="path", value=value, limit=limit)


def _section(path: Path, data: memoryview, entry: tuple[bytes, int, int, int, int]) -> tuple[str, memoryview]:
    padded, offset, length, checksum, _ = entry
    name, content = padded.rstrip(b"\0").decode("ascii"), data[offset : offset + length]
    if len(content) != length or zlib.crc32(content) != checksum:
        raise damaged(path, f"section {name}")
    return name, content


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
