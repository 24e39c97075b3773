"""A compiler's process: reads a program, builds it, sends the result; ends when its parent does.

Its limits are set here, of memory and by the kernel of files and system calls (`confinement`); time is the parent's to
watch (compiler.py).
"""

import gc
import json
import os
import resource
import time
from itertools import count
from multiprocessing.connection import Connection

from services.evaluator.compiling.assembler import possible_assemblers
from services.evaluator.compiling.toolchain import Toolchain
from services.evaluator.confinement.profile import Profile, confine
from sparsesmith.cuda.nvrtc import toolkits, wheel_folders
from sparsesmith.errors import Unavailable

WORKER_MEMORY_BYTES = 4 << 30
PROGRAMS_A_COLLECTION = 50
"""A worker looks for cycles among its objects that often."""
NICENESS = 10
"""Compiling gives way to the device's process: a core that both want times and checks first."""
MAX_SENT_CHARACTERS = 1 << 20
"""Of a log."""

READY = b"ready"


def serve(descriptor: int, *, is_confined: bool) -> None:
    """Main loop, on a connection by its file descriptor."""
    connection = Connection(descriptor)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, WORKER_MEMORY_BYTES))
    try:
        if is_confined:
            confine(Profile(read=(*toolkits(), *wheel_folders()), run=tuple(possible_assemblers())))
        toolchain = Toolchain.find()
    except OSError as error:
        connection.send_bytes(f"the compiler's process cannot be confined: {error}".encode())
        return
    except Unavailable as error:
        connection.send_bytes(error.message.encode())
        return
    connection.send_bytes(READY)
    gc.disable()  # A module taken apart is thousands of small objects, and gone with its program.
    for number in count(1):
        if number % PROGRAMS_A_COLLECTION == 0:
            gc.collect()
        try:
            source, architecture = json.loads(connection.recv_bytes())
        except EOFError:
            return
        started = time.perf_counter()
        built = toolchain.build(source, architecture)
        header = {
            "succeeded": built.succeeded,
            "log": _ends_of(built.log),
            "compile_ms": (time.perf_counter() - started) * 1e3,
            "facts": built.facts.to_json(),
        }
        connection.send_bytes(json.dumps(header).encode())
        if built.succeeded:
            connection.send_bytes(built.ptx.encode())
            connection.send_bytes(built.cubin)


def _ends_of(log: str) -> str:
    """Of a long log the beginning, and the end, where the resources stand."""
    part = MAX_SENT_CHARACTERS // 2
    return log if len(log) <= 2 * part else f"{log[:part]}\n{log[-part:]}"
