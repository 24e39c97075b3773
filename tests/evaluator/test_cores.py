"""How many cores a container leaves an evaluator, as the kernel writes it down."""

import os
from pathlib import Path

import pytest

from services.evaluator.cores import num_cores

AVAILABLE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000\n", AVAILABLE), ("100000 100000\n", 1), ("50000 100000\n", 1), ("99900000 100000\n", AVAILABLE)],
)
def test_a_bound_of_the_second_version_of_control_groups_counts(text: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert num_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", AVAILABLE), ("100000", 1)])
def test_a_bound_of_the_first_version_counts(quota: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert num_cores(tmp_path) == cores


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert num_cores(tmp_path) == AVAILABLE
