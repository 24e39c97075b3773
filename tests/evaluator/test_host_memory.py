"""How much of the host's memory is left to an evaluator, as the kernel writes it down."""

from pathlib import Path

import pytest

from services.evaluator.host_memory import available_bytes

MIB = 1 << 20


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n")
    return path


def test_without_control_groups_the_machine_counts(meminfo: Path, tmp_path: Path) -> None:
    assert available_bytes(meminfo, tmp_path / "none") == 8 * MIB


@pytest.mark.parametrize(
    ("limit", "used", "available"),
    [("max", 1, 8), (str(5 * MIB), 3, 2 + 1), (str(5 * MIB), 5, 1), (str(2 * MIB), 5, 0), (str(64 * MIB), 1, 8)],
)
def test_a_bound_of_the_second_version_counts_without_files_that_can_be_forgotten(
    limit: str, used: int, available: int, meminfo: Path, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 4096\ninactive_file {MIB}\n")
    assert available_bytes(meminfo, tmp_path) == available * MIB


def test_a_bound_of_the_first_version_counts(meminfo: Path, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{5 * MIB}\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text(f"{3 * MIB}\n")
    (tmp_path / "memory" / "memory.stat").write_text(f"inactive_file 0\ntotal_inactive_file {MIB}\n")
    assert available_bytes(meminfo, tmp_path) == 3 * MIB


def test_where_nothing_tells_there_is_none(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 0


def test_this_machine_tells() -> None:
    assert available_bytes() > MIB
