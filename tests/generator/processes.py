"""Services as real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class ServiceProcess:
    """`python -m MODULE` with its output in a file."""

    def __init__(self, module: str, log: Path, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")])
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": path, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def terminate(self, timeout_s: float = 120) -> int:
        """SIGTERM and wait; the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def members(self) -> list[int]:
        """Processes of its session that live: itself, its children and theirs."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getsid(pid) == self._process.pid and "\nState:\tZ" not in (entry / "status").read_text():
                    found.append(pid)
        return found

    def left_behind(self, within_s: float = 10) -> list[int]:
        """Members that still live after a while: what was told to end may take a moment."""
        end = time.monotonic() + within_s
        while (members := self.members()) and time.monotonic() < end:
            time.sleep(0.1)
        return members

    def end(self) -> None:
        """Whatever is left of it."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(10)


def wait_until(url: str, timeout_s: float) -> float:
    """Until an address answers with 200; the seconds it took."""
    started = time.monotonic()
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url).status_code == 200:
                return time.monotonic() - started
        assert time.monotonic() - started < timeout_s, f"{url} does not answer"
        time.sleep(0.1)
