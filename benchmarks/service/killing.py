"""Whom the soak kills: processes of a stack, and who is next."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sparsesmith.runtime.stack import Stack

ENGINE = "engine"
"""The generator's child that samples."""
SLOW = ("generator", ENGINE)
"""Kinds whose return takes long."""
LEAST_AGE_S = 5.0
"""Who is younger is left alone: a process that only imports does nothing that a kill could break."""
LOOK_S = 0.25
RETURN_S = 600
"""Of a process that was killed, on a busy machine."""


@dataclass
class Killer:
    """Kills processes of a stack with SIGKILL, spread over a time: each kind, then by chance among those that live."""

    stack: Stack
    kinds: Collection[str]
    chosen: random.Random
    slow: int
    """Times that each slow kind is killed."""
    killed: Counter[str] = field(default_factory=Counter)

    def spread(self, count: int, seconds: float) -> None:
        """So many kills in this time, or fewer where too few processes are back."""
        began = time.monotonic()
        while (share := (time.monotonic() - began) / seconds) < 1:
            if self.killed.total() < min(count, int(share * count) + 1):
                living = {kind: pid for kind, pid in process_ids(self.stack).items() if age_s(pid) >= LEAST_AGE_S}
                kind = victim(living.keys() & {*self.kinds}, self.kinds, self.killed, self.slow, share, self.chosen)
                if kind is not None:
                    self._kill(kind, living[kind])
                    continue
            time.sleep(LOOK_S)

    def kill(self, kind: str) -> None:
        """Raises TimeoutError where there is none for `RETURN_S`."""
        deadline = time.monotonic() + RETURN_S
        while time.monotonic() < deadline:
            pid = process_ids(self.stack).get(kind)
            if pid is not None and self._kill(kind, pid):
                return
            time.sleep(LOOK_S)
        raise TimeoutError(f"no {kind} ran for {RETURN_S} s")

    def _kill(self, kind: str, pid: int) -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed[kind] += 1
            print(f"killed {kind}", flush=True)
            return True
        return False


def victim(
    living: Collection[str],
    kinds: Collection[str],
    killed: Mapping[str, int],
    slow: int,
    share: float,
    chosen: random.Random,
) -> str | None:
    """The next one, at a share of the time. Slow kinds when their time has come, evenly over it; the others once each,
    then by chance. None: there is nobody now whose turn it is."""
    for kind in SLOW:
        offset = (SLOW.index(kind) + 0.5) / len(SLOW)  # So that one is back before the other goes.
        if kind in living and killed.get(kind, 0) <= slow * share - offset:
            return kind
    fast = sorted({*living} - {*SLOW})
    spared = [kind for kind in fast if not killed.get(kind)]
    return chosen.choice(spared or fast) if fast and kinds else None


def process_ids(stack: Stack) -> dict[str, int]:
    """Of all kinds that run now, the engine's own process included."""
    found = {kind: pid for kind, pid in stack.pids().items() if state_of(pid) not in ("", "Z")}
    engines = [pid for pid in session(found.get("generator", -1)) if title(pid).startswith("VLLM::EngineCore")]
    return {**found, ENGINE: engines[0]} if engines else found


def session(leader: int) -> Iterator[int]:
    """Processes of a session."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) == leader:
                yield int(entry.name)


def title(pid: int) -> str:
    """As it calls itself; empty: it is gone."""
    return _read(pid, "cmdline")


def state_of(pid: int) -> str:
    """One letter, as ps tells it; empty: it is gone."""
    return (_stat(pid) or [""])[0]


def age_s(pid: int) -> float:
    """Since its start; 0: it is gone."""
    if not (words := _stat(pid)):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Resident, its share of what others hold, too; 0: it is gone."""
    words = _read(pid, "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def _stat(pid: int) -> list[str]:
    """Fields from the state on: the name before them may hold blanks."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
