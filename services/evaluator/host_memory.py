"""Host memory that this process may still take: less than the machine has where a container bounds it."""

from pathlib import Path

from services.evaluator.cores import CGROUP

MEMINFO = Path("/proc/meminfo")


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """What the kernel would give without swapping, by the machine and by the control group; 0 where neither tells."""
    found = [each for each in (_of_machine(meminfo), _of_group(cgroup)) if each is not None]
    return max(0, min(found, default=0))


def _of_machine(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _of_group(cgroup: Path) -> int | None:
    """Files that were read and can be forgotten count as free. None: no bound."""
    second, first = cgroup, cgroup / "memory"
    try:
        if (second / "memory.max").exists():
            limit, used = ((second / f"memory.{name}").read_text() for name in ("max", "current"))
            return int(limit) - int(used) + _inactive_files(second)  # ValueError: `max`.
        limit, used = ((first / f"memory.{name}_in_bytes").read_text() for name in ("limit", "usage"))
        return int(limit) - int(used) + _inactive_files(first)
    except (OSError, ValueError):
        return None


def _inactive_files(folder: Path) -> int:
    """In bytes, those of groups below included."""
    words = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return int(words.get("total_inactive_file", words.get("inactive_file", "0")))
