"""Child processes that end with this one, however it ends.

The kernel does it on Linux. Elsewhere children survive a parent that is killed, and not one that ends in order.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

_PARENT = ThreadPoolExecutor(1, thread_name_prefix="parent-of-processes")
"""The kernel ends a child with the *thread* that started it: this one starts all, and lives as long as we do."""


def start(
    command: Sequence[str],
    output: Path,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """A child in a session of its own, so that Ctrl-C does not reach it. What it prints is appended to a file.

    `keep_open` are file descriptors that it inherits.
    """
    return _PARENT.submit(_start, command, output, environment, keep_open).result()


def stop(process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """SIGTERM to the child, and after the timeout SIGKILL to its whole group; waits until it is gone."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def child_options() -> dict[str, Any]:
    """Options of `subprocess.Popen` for a child that ends with the calling thread, in a session of its own."""
    parent = os.getpid()
    options: dict[str, Any] = {"start_new_session": True, "stdin": subprocess.DEVNULL}
    if _LIBC is not None:
        options["preexec_fn"] = lambda: _end_with(parent)
    return options


def _start(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None, keep_open: Sequence[int]
) -> "subprocess.Popen[bytes]":
    inherited = None if environment is None else dict(environment)
    with output.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=inherited, pass_fds=keep_open, **child_options())


def _end_with(parent: int) -> None:
    """In the child, between fork and exec: calls nothing that could wait for another thread's lock."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
