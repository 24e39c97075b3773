"""The process that forks one for each reference, passes messages on, and ends what takes too long. Our own code alone.

python -m services.evaluator.references.forks DESCRIPTOR MEMORY_BYTES LIMIT_S CONFINED
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
from multiprocessing.connection import Connection
from typing import NoReturn

from services.evaluator.confinement.profile import Profile, confine
from services.evaluator.references.wire import packed, relayed

READY = b"ready"
PR_SET_PDEATHSIG = 1


def main() -> None:
    descriptor, memory_bytes, limit_s, is_confined = sys.argv[1:5]
    _die_with_parent()
    connection = Connection(int(descriptor))
    from services.evaluator.references.runner import warm_up

    warm_up()
    connection.send_bytes(READY)
    forks = Forks(connection, int(memory_bytes), float(limit_s), is_confined=is_confined == "True")
    forks.serve()


class Forks:
    """One child at a time: that of the task that was asked about last."""

    def __init__(self, connection: Connection, memory_bytes: int, limit_s: float, *, is_confined: bool) -> None:
        self._connection = connection
        self._memory_bytes = memory_bytes
        self._limit_s = limit_s
        self._is_confined = is_confined
        self._child: tuple[str, int, Connection] | None = None

    def serve(self) -> None:
        """Until nobody asks any more."""
        while True:
            try:
                question = relayed(self._connection)
            except EOFError:
                self._end()
                return
            source = json.dumps(json.loads(question[0])["header"]["source"], sort_keys=True)
            for part in self._answered(source, question):
                self._connection.send_bytes(part)

    def _answered(self, source: str, question: list[bytes]) -> list[bytes]:
        child = self._of(source)
        try:
            for part in question:
                child.send_bytes(part)
            if child.poll(self._limit_s):
                return relayed(child)
            reason = f"it did not end within {self._limit_s:g} s"
        except (EOFError, OSError, ValueError):
            reason = f"it ended its process (it may have needed more than {self._memory_bytes >> 20} MiB)"
        self._end()
        return packed({"error": reason, "field": "reference"}, {})

    def _of(self, source: str) -> Connection:
        if self._child is not None and self._child[0] == source:
            return self._child[2]
        self._end()
        ours, theirs = _pair()
        process_id = os.fork()
        if process_id == 0:
            ours.close()
            self._become_runner(theirs)
        theirs.close()
        self._child = (source, process_id, ours)
        return ours

    def _become_runner(self, connection: Connection) -> NoReturn:
        """Nothing of what this process holds is left but the way to whoever asks."""
        kept = connection.fileno()
        os.closerange(3, kept)
        os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        _die_with_parent()
        resource.setrlimit(resource.RLIMIT_AS, (self._memory_bytes, self._memory_bytes))
        if self._is_confined:
            confine(Profile())
        from services.evaluator.references.runner import serve

        serve(connection)
        os._exit(0)

    def _end(self) -> None:
        if self._child is not None:
            _, process_id, connection = self._child
            connection.close()
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)
            self._child = None


def _pair() -> tuple[Connection, Connection]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
