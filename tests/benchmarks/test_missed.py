"""What the report says of targets that are missed."""

from typing import Any

from benchmarks.report.missed import missed_section
from tests.benchmarks.suites import make_kernel, make_row, make_suite, make_times

IRREGULAR_ROW = "web_500000_seed1"


def rows(slow_us: float) -> list[dict[str, Any]]:
    """Of each class one at 10 us over 3 us, and an irregular one."""
    usual = [make_row(f"m{nnz}", make_kernel(3.0), nnz=nnz) for nnz in (10_000, 200_000, 2_000_000)]
    return [*usual, make_row(IRREGULAR_ROW, make_kernel(slow_us), nnz=2_000_000, **{"class": "web"})]


def section(*results: dict[str, Any]) -> str:
    return "\n".join(missed_section(results))


def test_means_are_told_with_and_without_the_irregular_kinds() -> None:
    text = section(make_suite(*rows(slow_us=10.0)))
    assert "validation and generated" not in text  # Every class is above its aim.
    missed = section(make_suite(*rows(slow_us=10.0)[2:]))
    assert "- / - / 1.83 (mean 1.83), aim 2.50 / 2.20 / 1.80 (mean 2.15)" in missed
    assert "Without the 1 matrices of irregular kinds - / - / 3.33 (mean 3.33). They are at 1.00x (web)." in missed


def test_the_routine_that_is_best_most_often_is_named() -> None:
    csr = {"routine": "cusparse_csr_alg3", **make_times(10, preparation_ms=0)}
    suite = make_suite(
        make_row("a", make_kernel(9), best_baseline=csr),
        make_row("b", make_kernel(9), best_baseline=csr),
        make_row("c", make_kernel(9)),
        operation="spmm",
        num_dense_cols=32,
    )
    assert "`cusparse_csr_alg3` is the best routine on 2 of 3 matrices." in section(suite)


def test_stages_are_shares_of_the_wall_time_of_the_searches() -> None:
    text = section(make_suite(*rows(slow_us=10.0)))
    assert "nnz <= 1e+06, 32 cores: 30, aim 60. Of the searches' wall time: baselines 30%, compile_wait 20% (" in text


def test_formats_that_are_built_too_late_are_named() -> None:
    row = {"class_nnz": 1e7, "format": "ell", "device_ms": 2.0}
    slow = [{**row, "format": "csr_tiles", "device_ms": ms} for ms in (5.0, 60.0, 110.0)]
    text = section({"kind": "device_builders", "device": "NVIDIA H200", "rows": [row, *slow]})
    assert (
        "1 of 2 formats keep it on every pattern, these do not, ms in the median (at most): csr_tiles 60.0 (to 110.0)."
        in text
    )
    assert section({"kind": "device_builders", "device": "NVIDIA H200", "rows": [row]}) == ""


def test_only_the_latest_times_at_once_are_told() -> None:
    stages = {"choose": 45.2, "format": 2.2}
    entry = {"nnz": 1e5, "target_ms": 25, "first_ms": 104.0, "again_ms": 53.7, "first_stages_ms": stages}
    old = {"kind": "instant", "device": {"kind": "cuda"}, "date": "2026-01-01T00:00", "classes": [entry]}
    new = {**old, "date": "2026-02-01T00:00", "classes": [{**entry, "first_ms": 24.0}]}
    assert "104 ms, aim 25; the longest stages: choose 45 ms, format 2 ms" in section(old)
    assert section(new, old) == ""
