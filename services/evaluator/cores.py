"""Cores that this process may use: fewer than the machine has where a container bounds them.

`os.cpu_count` does not see that, and a compiler for each of the machine's cores would not fit a container's memory.
"""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def num_cores(cgroup: Path = CGROUP) -> int:
    """By affinity and by the control group's quota of time, rounded up; 1 at least."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return affinity if quota is None else max(1, min(affinity, -(-quota[0] // quota[1])))


def _quota(cgroup: Path) -> tuple[int, int] | None:
    """Microseconds of all cores together in each period of so many; None: no bound."""
    second, first = cgroup / "cpu.max", cgroup / "cpu"
    try:
        if second.exists():
            words = second.read_text().split()
        else:
            words = [(first / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")]
        quota, period = map(int, words)
    except (OSError, ValueError):  # No control groups, or `max`.
        return None
    return (quota, period) if quota > 0 and period > 0 else None
