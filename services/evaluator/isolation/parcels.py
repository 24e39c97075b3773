"""What one process sends another through a pipe, large arrays in memory that both see.

A pipe moves some tens of kilobytes at a time, and pickling copies every array on both sides: a pattern of 1e7 nonzeros
takes 0.2 s that way. Here the arrays are written once into a file that is memory alone (`memfd_create`), sealed, and
its descriptor is handed over beside the message. The receiver maps it: pages that it writes to become its own, and
nothing that it does reaches the sender or another receiver of the same file.

Where the system has no such files, everything goes through the pipe.
"""

import fcntl
import mmap
import os
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

LEAST_BYTES = 1 << 17
"""Of all arrays of a message; fewer take less time through the pipe."""
ALIGNMENT_BYTES = 64


def send(connection: Connection, message: object, receiver: int) -> None:
    """`receiver`: the process at the other end. Raises OSError."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    file = _written(parts) if sum(part.nbytes for part in parts) >= LEAST_BYTES else None
    if file is None:
        connection.send((text, None, [bytearray(part) for part in parts]))
        return
    try:
        connection.send((text, [part.nbytes for part in parts], None))
        send_handle(connection, file, receiver)
    finally:
        os.close(file)


def receive(connection: Connection) -> Any:
    """Raises EOFError, OSError."""
    text, sizes, parts = connection.recv()
    return pickle.loads(text, buffers=parts if sizes is None else _mapped(recv_handle(connection), sizes))


def _written(parts: Sequence[memoryview]) -> int | None:
    """A file of memory that nobody can change any more; None where it cannot be made."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        file = os.memfd_create("parcel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    try:
        for part in parts:
            _write(file, part)
            _write(file, memoryview(bytes(-part.nbytes % ALIGNMENT_BYTES)))
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(file)
        return None
    return file


def _write(file: int, part: memoryview) -> None:
    while part.nbytes:
        part = part[os.write(file, part) :]


def _mapped(file: int, sizes: Sequence[int]) -> list[memoryview]:
    try:
        whole = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(file)
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size + -size % ALIGNMENT_BYTES)
    return [whole[start : start + size] for start, size in zip(starts, sizes, strict=False)]
