"""Scalars as an event file that TensorBoard reads, without its package: TFRecords of a few protobuf fields.

record   length (uint64), masked CRC-32C of it, data, masked CRC-32C of the data
data     Event: 1 wall_time (double), 2 step (int64), 3 file_version (string) or 5 summary
summary  1 value: 1 tag (string), 2 simple_value (float)
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_POLYNOMIAL = 0x82F63B78
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Scalar:
    """One number of a curve."""

    tag: str
    step: int
    at_s: float
    """Seconds from the beginning of the course."""
    value: float


def write_events(path: Path, scalars: Iterable[Scalar], began_at: float) -> None:
    """In the place of what was there. `began_at`: seconds of the epoch, from which TensorBoard counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    version = _field(3, _BYTES, b"brain.Event:2")
    events = [_double(1, began_at) + version, *(_event(each, began_at) for each in scalars)]
    path.write_bytes(b"".join(_record(event) for event in events))


def _event(scalar: Scalar, began_at: float) -> bytes:
    value = _field(1, _BYTES, scalar.tag.encode()) + _key(2, _FIXED32) + struct.pack("<f", scalar.value)
    summary = _field(1, _BYTES, value)
    return _double(1, began_at + scalar.at_s) + _key(2, _VARINT) + _varint(scalar.step) + _field(5, _BYTES, summary)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecords have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_row(byte) for byte in range(256))


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _double(number: int, value: float) -> bytes:
    return _key(number, _FIXED64) + struct.pack("<d", value)


def _field(number: int, kind: int, content: bytes) -> bytes:
    return _key(number, kind) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
