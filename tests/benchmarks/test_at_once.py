"""Sections of the report on kernels at once."""

from typing import Any

from benchmarks.report.at_once import builder_lines, determinism_lines, http_lines, instant_lines
from benchmarks.report.break_even import STOOD_IN


def make_instant(**changes: Any) -> dict[str, Any]:
    stages = {"choose": 45.2, "upload": 5.8, "format": 2.2, "compile_wait": 33.6, "check": 3.3}
    aimed = {"nnz": 1e5, "target_ms": 25, "matrices": 6, "first_ms": 103.8, "worst_first_ms": 150.3, "again_ms": 53.7}
    return {"classes": [{**aimed, "first_stages_ms": stages}], "rows": [make_row()]} | changes


def make_row(first_ms: float = 100.0, **changes: Any) -> dict[str, Any]:
    stages = {
        "choose": 40.0,
        "load": 0.5,
        "read": 2.0,
        "upload": 6.0,
        "format": 4.0,
        "compile_wait": 30.0,
        "check": 3.0,
    }
    return {"class_nnz": 1e5, "first_ms": first_ms, "first_stages_ms": stages} | changes


def test_an_answer_at_once_is_shown_beside_its_aim() -> None:
    lines = instant_lines(make_instant())
    assert lines[-1] == "| 1e+05 | 6 | 25 | 104 | 150 | 54 | 45 | 6 | 2 | 34 | 3 | 17 |"


def test_no_part_of_an_answer_at_once_is_left_out() -> None:
    """What the shown stages do not explain is shown as well, of the rows of the class alone."""
    rows = [make_row(90.0), make_row(110.0), make_row(100.0), make_row(500.0, class_nnz=1e6)]
    assert instant_lines(make_instant(rows=rows))[-1].endswith("| 3 | 17 |")


def test_what_it_is_worth_is_told_where_a_search_followed() -> None:
    rows = [make_row(worth={"speed": speed}) for speed in (0.5, 0.9, 1.0)]
    assert (
        instant_lines(make_instant(rows=rows))[-1]
        == "Speed over the searched kernel: 0.90 in the median, 0.50 at least."
    )
    assert instant_lines(make_instant(rows=rows, stands_in=True))[-1].endswith(STOOD_IN)


def test_what_a_client_waits_is_shown_beside_what_of_it_is_the_evaluators() -> None:
    waited = {"http_ms": 180.4, "slowest_http_ms": 301.0, "tuning_ms": 92.6, "evaluator_ms": 55.2}
    result: dict[str, Any] = {
        "classes": [{"nnz": 1e6, "target_ms": 60, "matrices": 5, **waited}],
        "rows": [{"name": "band"}],
    }
    assert http_lines(result)[-1] == "| 1e+06 | 5 | 60 | 180 | 301 | 93 | 55 |"
    result["rows"].append({"name": "fem", "failed": "no kernel was handed out before the search"})
    assert http_lines(result)[-1] == "No kernel was handed out for fem."


def test_formats_that_the_device_left_to_the_host_are_counted_and_refused_ones_are_not() -> None:
    row = {"class_nnz": 1e6, "format": "ell", "host_ms": 4.0}
    built = [{**row, "device_ms": ms, "fetched_ms": 2 * ms} for ms in (0.1, 0.3, 0.2)]
    rows = [*built, {**row, "host_ms": 8.0}, {**row, "refused": "too many slots"}]
    device, fetched, host = "0.20 (0.10 to 0.30)", "0.40 (0.20 to 0.60)", "4.00 (4.00 to 8.00)"
    assert builder_lines({"rows": rows})[-1] == f"| ell | 1e+06 | 4 | {device} | {fetched} | {host} | 1 |"
    assert builder_lines({"rows": rows[3:4]})[-1] == "| ell | 1e+06 | 1 | - | - | 8.00 (8.00 to 8.00) | 1 |"


def test_bits_that_differed_are_told() -> None:
    result = {"runs": 6120, "matrices": 6, "contexts": 6, "differing": 2, "speedup_over_best_deterministic": 3.0863}
    assert "6,120 runs" in determinism_lines(result)[0]
    assert "2 gave other bits" in determinism_lines(result)[0]
    assert "3.09x" in determinism_lines(result)[0]
