"""What a process must not be able to do once it is confined, tried in that process itself.

    python -m tests.evaluator.deeds FOLDER may_run|no_programs|gpu

FOLDER holds `own/` and `other/` with a file `secret`. Prints what became of each deed as JSON: `done`, or an error's
name.
"""

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.evaluator.confinement.calls import syscall
from services.evaluator.confinement.profile import Profile, confine
from services.evaluator.device import Device
from sparsesmith.errors import Unavailable
from sparsesmith_proto.kernel import DeviceDescription

DONE = "done"
X32_SOCKET = 0x40000000 | 41


def attempt(deed: Callable[[], object]) -> str:
    """`done`, or the name of the error: EPERM, EACCES."""
    try:
        deed()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return DONE


def call(number: int, *arguments: int) -> Callable[[], None]:
    """A system call by its number on x86_64."""

    def deed() -> None:
        if syscall(number, *arguments) == -1:
            raise OSError(ctypes.get_errno(), "")

    return deed


def forked() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def in_a_new_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    thread.join()
    assert done.is_set()


def hostile(folder: Path) -> dict[str, Callable[[], object]]:
    """Deeds that must fail whatever the process is for."""
    other = folder / "other"
    return {
        "socket": lambda: socket.socket(socket.AF_INET),
        "unix socket": lambda: socket.socket(socket.AF_UNIX),
        "socket pair": socket.socketpair,
        "ptrace": call(101, 0),
        "memory of another": call(310, os.getppid(), 0, 0, 0, 0, 0),
        "io_uring": call(425, 1, 0),
        "bpf": call(321, 0, 0, 0),
        "namespace": call(272, 0x10000000),
        "mount": call(165, 0, 0, 0, 0, 0),
        "perf": call(298, 0, 0, 0, 0, 0),
        "keys": call(250, 0, 0),
        "another table of calls": call(X32_SOCKET, 2, 1, 0),
        "signal to the parent": lambda: os.kill(os.getppid(), 0),
        "write": lambda: (other / "new").write_text("x"),
        "overwrite": lambda: (other / "secret").open("r+"),
        "truncate": lambda: os.truncate(other / "secret", 0),
        "remove": lambda: (other / "secret").unlink(),
        "rename": lambda: (folder / "own" / "yours").rename(other / "mine"),
        "folder": lambda: (other / "folder").mkdir(),
        "link": lambda: (other / "link").symlink_to("secret"),
        "read": lambda: (other / "secret").read_text(),
        "list": lambda: list(other.iterdir()),
        "environment of the parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "write to a device": lambda: Path("/dev/mem").open("wb"),
    }


def of_programs() -> dict[str, Callable[[], object]]:
    """Deeds that must fail where no program may be started."""
    return {
        "program": lambda: os.execv("/bin/true", ["true"]),
        "child": lambda: subprocess.run(["/bin/true"], check=True),
        "fork": forked,
    }


def listening() -> socket.socket:
    """As CUDA's driver does when it starts."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(f"\0deeds-{os.getpid()}")
    made.listen()
    return made


def of_a_driver() -> dict[str, Callable[[], object]]:
    """What a process with a GPU must be able to do, and what it must not with that."""
    return {
        "listen": listening,
        "accept": lambda: listening().accept(),
        "connect": lambda: socket.socket(socket.AF_UNIX).connect("/nobody"),
        "datagrams": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "network's packets": lambda: socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET),
    }


def usual(folder: Path) -> dict[str, Callable[[], object]]:
    """Deeds that must go on working."""
    return {
        "thread": in_a_new_thread,
        "own write": lambda: (folder / "own" / "mine").write_text("x"),
        "own read": lambda: (folder / "own" / "mine").read_text(),
        "own temporary file": lambda: tempfile.TemporaryFile(dir=folder / "own").close(),
        "temporary folder": lambda: tempfile.TemporaryDirectory().cleanup(),
        "own rename": lambda: (folder / "own" / "mine").replace(folder / "own" / "yours"),
        "library": lambda: ctypes.CDLL("libm.so.6"),
        "python": lambda: __import__("colorsys"),
        "nothing": lambda: Path("/dev/null").write_text("x"),
        "pipe": os.pipe,
        "memory file": lambda: os.write(os.memfd_create("x"), b"x"),
    }


def results(folder: Path) -> dict[str, str]:
    """Of all deeds, in this process, which must be confined."""
    deeds = {**usual(folder), **hostile(folder), **of_programs()}
    return {name: attempt(deed) for name, deed in deeds.items()}


@dataclass(frozen=True)
class TryingFactory:
    """Makes no device: says what it could do in the device's process."""

    folder: Path

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        raise Unavailable(json.dumps(results(self.folder)))


def with_a_gpu(folder: Path) -> dict[str, str]:
    confine(Profile(write=(folder / "own",), gpu=True))
    deeds = {**usual(folder), **hostile(folder), **of_programs(), **of_a_driver()}
    return {name: attempt(deed) for name, deed in deeds.items()}


def main(folder: Path, *, may_run: bool) -> dict[str, str]:
    told, begun = threading.Event(), {}

    def early() -> None:
        told.wait()
        begun["socket of an earlier thread"] = attempt(lambda: socket.socket(socket.AF_INET))

    thread = threading.Thread(target=early)
    thread.start()
    confine(Profile(write=(folder / "own",), run=(Path("/bin/true"),) if may_run else ()))
    told.set()
    thread.join()
    if not may_run:
        return begun | results(folder)
    deeds = {**usual(folder), **hostile(folder)}
    ran = {
        "the program": attempt(lambda: subprocess.run(["/bin/true"], check=True)),
        "another": attempt(lambda: subprocess.run(["/bin/ls"], check=True)),
        "a shell": attempt(lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True)),
    }
    return {name: attempt(deed) for name, deed in deeds.items()} | ran


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        place, mode = Path(sys.argv[1]), sys.argv[2]
        print(json.dumps(with_a_gpu(place) if mode == "gpu" else main(place, may_run=mode == "may_run")))
