"""Evaluation workers as processes that a test can kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUICK = Path(__file__).with_name("quick_evaluator.py")
SANDBOXED = Path(__file__).with_name("sandboxed_evaluator.py")


class Workers:
    """Worker processes on one Redis; `folder` shows what they began."""

    def __init__(self, address: str, folder: Path, script: Path = QUICK) -> None:
        self._script = script
        self._address = address
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, gpu: str = "") -> None:
        """`gpu`: of its device, for a script that takes one."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
        command = [sys.executable, str(self._script), self._address, name, str(self.folder), *([gpu] if gpu else [])]
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log
            )

    def log(self, name: str) -> str:
        """What the worker said."""
        return self._log(name).read_text()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def peak_memory_bytes(self, name: str) -> int:
        """The most that the worker ever had in memory."""
        lines = Path(f"/proc/{self.pid(name)}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

    def wait_for_end(self, name: str) -> int:
        return self._processes[name].wait(60)

    def kill(self, name: str) -> None:
        self.send(name, signal.SIGKILL)
        self.wait_for_end(name)

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(20)

    def began(self, job_id: str) -> set[str]:
        """Names of the workers that began the job."""
        return {name for name in self._processes if (self.folder / f"{job_id}.{name}").exists()}

    def release(self) -> None:
        """Held jobs go on."""
        (self.folder / "release").touch()


def wait_until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
