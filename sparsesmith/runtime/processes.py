"""Child processes that end with their parent."""

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def child_options() -> dict[str, Any]:
    """Options of `subprocess.Popen` for a child in a process group of its own, which the kernel ends if we die."""
    options: dict[str, Any] = {"start_new_session": True, "stdin": subprocess.DEVNULL}
    if sys.platform == "linux":
        options["preexec_fn"] = _die_with_parent
    return options


def stop(process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """SIGTERM to the child, and after the timeout SIGKILL to its whole group; waits until it is gone."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
