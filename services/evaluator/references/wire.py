"""Messages between a process that asks and one that runs a reference: JSON and arrays, nothing that could be code."""

import io
import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]
MAX_MESSAGE_BYTES = 1 << 40


def packed(header: Mapping[str, Any], arrays: Arrays) -> list[bytes]:
    """As `Connection.send_bytes` takes them one by one; the first says how many follow."""
    parts = [_bytes_of(array) for array in arrays.values()]
    return [json.dumps({"header": header, "arrays": list(arrays)}).encode(), *parts]


def send(connection: Connection, header: Mapping[str, Any], arrays: Arrays | None = None) -> None:
    for part in packed(header, arrays or {}):
        connection.send_bytes(part)


def receive(connection: Connection) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Raises EOFError, ValueError for what is no message."""
    parts = relayed(connection)
    first = json.loads(parts[0])
    arrays = {
        name: np.load(io.BytesIO(part), allow_pickle=False)
        for name, part in zip(first["arrays"], parts[1:], strict=True)
    }
    return first["header"], arrays


def relayed(connection: Connection) -> list[bytes]:
    """One message as it came. Raises EOFError, ValueError."""
    first = connection.recv_bytes()
    return [first, *(connection.recv_bytes() for _ in json.loads(first)["arrays"])]


def _bytes_of(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()
