from typing import Any

import pytest

from benchmarks.origin import ROOT
from benchmarks.report.break_even import break_even_section
from benchmarks.report.causes import cause
from benchmarks.report.pages import BEGIN, END, report, summary, with_table
from benchmarks.report.results import Suite, class_means, command_of_today, mean_of_classes, read_results, read_suites
from benchmarks.report.tables import (
    bandwidth_table,
    break_even_table,
    losses,
    means_table,
    placement_lines,
    policy_lines,
    repaid_line,
    rows_table,
)
from benchmarks.report.targets import graded_per_s, lost_share, other_table, speed_table
from tests.benchmarks.suites import make_kernel, make_row, make_suite, make_times

CSR_ROUTINE = {"routine": "cusparse_csr_alg2", **make_times(10, preparation_ms=0)}


def suite_of(*rows: dict[str, Any], **changes: Any) -> Suite:
    (suite,) = read_suites([make_suite(*rows, **changes)])
    return suite


def lost_to(**changes: Any) -> str:
    """The cause of a loss on a row with these changes; ours takes 20 us where the best routine takes 10."""
    suite = suite_of(make_row(kernel=make_kernel(20), **changes))
    return cause(suite, suite.rows[0])


def test_a_kernel_that_is_slower_counts_as_one_with_fallback_and_as_it_is_without() -> None:
    (row,) = suite_of(make_row(kernel=make_kernel(20))).rows
    assert (row.speedup(), row.speedup(fallback=False), row.speedup("default")) == (1.0, 0.5, 2.0)


def test_without_a_kernel_the_speed_up_is_that_of_the_best_routine() -> None:
    failed = make_row(families={"outcomes": {"mismatch": 2}, "best": None})
    (row,) = suite_of(failed).rows
    assert (row.speedup(), row.speedup(fallback=False), row.is_lost) == (1.0, 0.0, True)


def test_no_class_carries_the_mean_of_classes() -> None:
    rows = [make_row(f"small{number}", make_kernel(2.5)) for number in range(9)]
    suite = suite_of(*rows, make_row("large", make_kernel(10), nnz=2_000_000))
    means = class_means(suite.rows, "best", "warm")
    assert [means[0], means[2]] == pytest.approx([4, 1])
    assert mean_of_classes(means) == pytest.approx(2)


def test_estimated_times_enter_no_report() -> None:
    interpreter = make_suite() | {"device": {**make_suite()["device"], "kind": "interpreter"}}
    assert read_suites([interpreter]) == []


def test_a_target_that_is_met_is_bold_and_one_that_is_missed_is_not() -> None:
    met, missed = suite_of(make_row(kernel=make_kernel(5))), suite_of(make_row(kernel=make_kernel(9)))
    assert "| | all | warm | **2.00x (4.00x)**, 1 |" in "\n".join(speed_table([met]))
    assert "| | all | warm | 1.11x (2.22x), 1 |" in "\n".join(speed_table([missed]))


def test_candidates_a_second_count_the_wall_time_of_the_whole_searches() -> None:
    slow = {**make_row()["search"], "search_s": 2.0}
    quick, large = make_row("b", search={**slow, "search_s": 0.5}), make_row("c", nnz=2_000_000, search=slow)
    suite = suite_of(make_row("a"), quick, large)
    assert graded_per_s(suite.rows) == pytest.approx(90 / 3.5)
    what = "candidates graded a second, whole searches, nnz <= 1e6"
    assert f"| {what} | spmv float32 | >= 40 | **40.0** (all matrices: 25.7) |" in other_table([suite])


def test_seconds_to_within_one_percent_of_the_end_are_a_median_beside_their_target() -> None:
    def row(name: str, as_good_at_s: float | None) -> dict[str, Any]:
        return make_row(name, search={**make_row()["search"], "as_good_at_s": as_good_at_s})

    what = "GPU seconds of a search to within 1 % of its end, median"
    suite = suite_of(row("a", 0.35), row("b", 0.45), row("c", 0.9), row("nothing passed", None))
    expected = "**0.45 s** on 3 matrices (0.15 s without the library's routines)"
    assert f"| {what} | spmv float32 | <= 0.5 s | {expected} |" in other_table([suite])
    assert not any(what in line for line in other_table([suite_of(make_row())]))  # An early result file.


def test_the_share_of_lost_matrices_is_counted_before_fallback() -> None:
    suite = suite_of(make_row("won"), make_row("lost", make_kernel(11)), make_row("even", make_kernel(10.1)))
    assert lost_share(suite.rows) == pytest.approx(1 / 3)
    (line,) = losses(suite)
    assert line.startswith("- lost (stencil, 10,000 nnz): 0.91x of cusparse_coo_alg1 with csr_vector; ")


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"best_baseline": {"routine": "r", **make_times(19.9, preparation_ms=0)}}, "within the noise"),
        ({}, "latency: too little work"),
        ({"structure": {"longest_row": 900, "empty_rows": 0, "used_cols": 1, "x_sectors_per_nnz": 1}}, "uneven rows"),
        ({"csr_bytes": 40_000_000, "best_baseline": CSR_ROUTINE}, "no headroom"),
    ],
)  # fmt: skip
def test_a_loss_has_a_cause_that_follows_from_what_was_measured(changes: dict[str, object], expected: str) -> None:
    assert expected in lost_to(**changes)


def test_a_large_matrix_with_scattered_columns_is_bound_by_the_gather() -> None:
    scattered = {"longest_row": 12, "empty_rows": 0, "used_cols": 1000, "x_sectors_per_nnz": 0.9}
    kernel = make_kernel(20, format_bytes=40_000_000)
    (row,) = suite_of(make_row(kernel=kernel, structure=scattered, nnz=5_000_000, num_rows=500_000)).rows
    assert cause(suite_of(), row) == "gather of x: 0.90 sectors a nonzero, 7,200 GB/s of sectors"


def test_a_matrix_without_a_passed_program_says_what_became_of_all() -> None:
    suite = suite_of(make_row(families={"outcomes": {"crashed": 1, "mismatch": 2}, "best": None}))
    assert cause(suite, suite.rows[0]) == "no program passed (1 crashed, 2 mismatch)"


def test_the_bandwidth_table_shows_format_bytes_alone_and_with_the_vectors() -> None:
    kernel = make_kernel(20, format_bytes=60_000_000, cold_us=25)
    suite = suite_of(make_row("big", kernel, nnz=20_000_000, vector_bytes=10_000_000))
    assert "3,000 GB/s, 75% | 3,500 GB/s, **88%** | 2,800 GB/s, 70% |" in bandwidth_table(suite)[2]


def test_small_or_irregular_matrices_are_not_held_to_the_copy_bandwidth() -> None:
    assert bandwidth_table(suite_of(make_row("small"), make_row("graph", nnz=20_000_000) | {"class": "graph"})) == []


def test_break_even_is_never_where_most_matrices_never_repay() -> None:
    never = make_kernel(20, products_against_best=None)
    lines = break_even_table(suite_of(make_row("a", never), make_row("b", never), make_row("c")))
    assert lines[-1] == "| < 1e5, 3 | 1.10 | 1.00 | 4.0e+05, never, never | 2.0e+05, 2.0e+05, 2.0e+05 |"


def test_a_sample_that_never_passed_counts_as_the_library_with_fallback() -> None:
    outcomes = {"passed": 4}
    won = make_row("a", split="validation", policy={"outcomes": outcomes, "best": make_kernel(2.5)})
    none = make_row("b", split="validation", policy={"outcomes": {"mismatch": 4}, "best": None})
    suite = suite_of(won, none)
    whose = f"spmv float32, NVIDIA H200, {suite.commit[:8]}"
    told = f"| {whose} | 2 | 100.0% | 50.0% | 0.0% | 4.00x of 4 | 2.00x | 2.00x | 2.00x |"
    assert told in policy_lines([suite])


def test_the_report_names_what_was_not_measured() -> None:
    text = report([make_suite(make_row(), {"name": "broken", "failed": "no memory"}, missing=["late"])])
    assert "Not measured for lack of time: late." in text
    assert "- broken could not be measured: no memory" in text


def test_the_report_says_how_far_placements_of_the_buffers_lie_apart() -> None:
    rows = [make_row(name, make_kernel(5, placements_us=us)) for name, us in (("a", [4.0, 6.0]), ("b", [5.0, 5.1]))]
    (line,) = placement_lines(suite_of(*rows, make_row("one place")))
    assert line.startswith("2 kernels were timed at 2 placements of their buffers: the slowest takes 26% longer")
    assert line.endswith("50% at most (a).")
    assert placement_lines(suite_of(make_row())) == []


def test_held_out_matrices_stand_beside_the_suite_of_their_workload_and_apart_from_its_rows() -> None:
    held_out = make_suite(make_row("unseen", make_kernel(2.5), split="validation"), kind="held_out")
    results = [make_suite(make_row("m", make_kernel(5))), held_out]
    text = report(results)
    assert "| | all | warm | **2.00x (4.00x)**, 1 |" in text
    assert "| | held out | warm | **4.00x (8.00x)**, 1 |" in text
    assert "### Held out: spmv float32" in text
    kind = "spmv float32, held out, NVIDIA H200, cuSPARSE 12.6.3"
    assert f"| lost before fallback (below 0.98x) | {kind} | < 5% | **0.0%** |" in text
    assert "| held out: spmv float32, NVIDIA H200, cuSPARSE 12.6.3 | 4.00x (8.00x), 1 | - | - |" in summary(results)


def test_held_out_matrices_of_another_gpu_or_library_say_so() -> None:
    suite = make_suite(make_row("m", make_kernel(5)))
    held_out = make_suite(make_row("unseen", make_kernel(2.5), split="validation"), kind="held_out")
    newer = {**held_out["device"]["versions"], "cusparse": "12.9.4"}
    held_out["device"] = {**held_out["device"], "name": "NVIDIA H100 80GB HBM3", "versions": newer}
    text = report([suite, held_out])
    assert "| | held out, NVIDIA H100 80GB HBM3, cuSPARSE 12.9.4 | warm | **4.00x (8.00x)**, 1 |" in text
    assert "### Held out: spmv float32, NVIDIA H100 80GB HBM3" in text


def test_a_section_appears_only_where_its_result_file_is_there() -> None:
    evidence = {
        "kind": "order_independence",
        "commit": "c",
        "worst_change": 0.0123,
        "rows": [{"name": "m", "change": 0.01}],
    }
    assert "## Order of candidates" not in report([make_suite()])
    text = report([make_suite(), evidence])
    assert "- worst change: 0.0123" in text
    assert "| m | 0.01 |" in text


def test_only_what_stands_between_the_marks_of_the_readme_changes() -> None:
    text = with_table(f"before {BEGIN}\nold\n{END} after", summary([make_suite()]))
    assert text.startswith(f"before {BEGIN}\n| workload |")
    assert text.endswith(f"{END} after")
    assert "old" not in text


def test_the_readme_says_after_how_many_products_a_search_is_repaid() -> None:
    counts = (640_000, 791_234, 1_300_000, None)
    rows = [
        make_row(str(number), make_kernel(5) | {"products_against_best": count}) for number, count in enumerate(counts)
    ]
    assert repaid_line([suite_of(*rows)]).endswith(": spmv float32 1,300,000 (790,000 to never).")
    assert repaid_line([suite_of(*rows)]) in summary([make_suite(*rows)])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert repaid_line(read_suites(read_results())) in readme
    for untrue in ("thousands of times", "proved correct"):
        assert untrue not in readme


def test_the_search_is_held_to_two_percent_at_five_percent_of_the_cost() -> None:
    def regret(mean: float) -> dict[str, float]:
        return {"mean": mean, "p90": 2 * mean, "worst": 3 * mean}

    kind = {
        "workloads": 4,
        "prospects_median": 800.0,
        "regret_at_share": {"0.05": regret(0.013)},
        "regret_after": {"16": regret(0.03)},
        "regret_at_stop": regret(0.02),
        "asked_until_stop_median": 40.0,
        "seconds_until_stop_median": None,
        "seconds_exhaustive_median": 12.5,
    }
    tuner = {"kind": "tuner", "device": "NVIDIA H200", "date": "d", "cost_model": "cost-h200", "split": "validation"}
    text = report([make_suite(), {**tuner, "kinds": {"spmv float32": kind}, "rows": []}])
    assert "| spmv float32 | <= 2% | **1.3%** on 4 matrices |" in text
    assert "| spmv float32 | 4 | 800 | 1.3% (2.6%) | 3.0% (6.0%) | 2.0% (4.0%) | 40 | - | 12.5 |" in text


def test_two_runs_that_disagree_miss_the_target() -> None:
    compared = {
        "suite": "spmv float32",
        "matrices": 85,
        "time_ratio": 1.031,
        "speedup_ratio": 0.99,
        "share_within_tolerance": 0.9,
        "agrees": False,
    }
    text = report([make_suite(), {"kind": "repeatability", "commit": "c", "suites": [compared]}])
    assert "| means within 3.1% (speed-up 1.0%), 90% of 85 matrices within 5 % |" in text


def test_families_that_nobody_would_miss_are_named_apart() -> None:
    def entry(family: str, wins: int, loss: float) -> dict[str, object]:
        return {"family": family, "measured": 9, "wins": wins, "loss": loss, "largest_loss": 3 * loss}

    kinds = {"spmv float32": [entry("tiles", 5, 0.04), entry("coo", 0, 0.0)]}
    text = report([make_suite(), {"kind": "strategy_worth", "date": "d", "workloads": 9, "kinds": kinds}])
    assert "| spmv float32 | tiles | 5 of 9 | 4.00% | 12.0% |" in text
    assert "Nowhere the fastest, spmv float32: coo." in text


def test_fixed_values_are_set_against_open_ones() -> None:
    row = {
        "name": "poisson",
        "element_type": "float64",
        "nnz": 5000,
        "best_baseline": {"us": 9.0},
        "any": {"best": {"us": 6.0, "family": "dia"}},
        "fixed": {"best": {"us": 4.0, "family": "dia_constant"}},
    }
    result = {"kind": "fixed_values", "device": {"kind": "cuda", "name": "NVIDIA H200"}, "rows": [row]}
    text = report([make_suite(), result])
    assert "| poisson | float64 | 5,000 | 9.00 | 6.00 | dia | 4.00 | dia_constant | 1.50x |" in text


def test_commands_of_older_results_name_the_module_where_it_lies_now() -> None:
    assert command_of_today("python -m benchmarks.run --plan spmv") == "python -m benchmarks.measure.run --plan spmv"
    assert command_of_today("benchmarks.measure.run --names a") == "benchmarks.measure.run --names a"
    assert command_of_today("make soak") == "make soak"


SPMVOP = "cusparse_spmvop_alg2"


def test_a_routine_that_others_compare_with_is_a_column_of_every_table_where_it_was_timed() -> None:
    rows = [make_row("a", routines={SPMVOP: make_times(12)}), make_row("b", routines={})]
    suite = suite_of(*rows)
    assert "| all | warm | 2.00x (4.00x), 2 | - | - | 2.00x (4.00x) | 2.40 / - / -, 2.40x |" in means_table(suite)
    speeds = "\n".join(speed_table([suite]))
    assert "mean of classes | over SpMVOp ALG2 alone |" in speeds
    assert "CSR ALG2" not in speeds
    with_it, without_it = rows_table(suite)[2:4]
    assert "| 2.00x | 2.00x | 2.40x | " in with_it
    assert "| 2.00x | 2.00x | - | " in without_it
    assert "over SpMVOp ALG2 alone" in summary([make_suite(*rows)])


def test_no_table_has_a_column_of_a_routine_that_was_never_timed() -> None:
    assert " alone |" not in report([make_suite()])


def make_repaid(**answers: tuple[int | None, int | None]) -> dict[str, Any]:
    return {name: {"best": best, "default": default} for name, (best, default) in answers.items()}


def make_instant(*repaid: dict[str, Any], kind: str = "cuda") -> dict[str, Any]:
    return {
        "kind": "instant",
        "device": {"kind": kind, "name": "NVIDIA H200"},
        "date": "2026-01-01",
        "command": "python -m benchmarks.measure.instant",
        "rows": [{"name": "m", "worth": {"repaid": each}} for each in repaid],
    }


def test_break_even_is_a_curve_of_the_answers_that_a_file_has() -> None:
    quick, never = make_repaid(instant=(900, 400)), make_repaid(instant=(None, 50_000), full=(2_000_000, None))
    lines = break_even_section([make_instant(quick, never)])
    assert "| instant | best routine | 2 | never | 50% | 50% | 50% | 50% | 50% |" in lines
    assert "| instant | default | 2 | 25,200 | 50% | 50% | 100% | 100% | 100% |" in lines
    assert "| full | best routine | 1 | 2,000,000 | 0% | 0% | 0% | 0% | 100% |" in lines
    assert not any(line.startswith("| 0.1 s") for line in lines)


def test_break_even_says_where_families_that_are_gone_stood_in() -> None:
    result = make_instant(make_repaid(instant=(900, 400)))
    assert "row_bins_any" in "\n".join(break_even_section([{**result, "stands_in": True}]))
    assert "row_bins_any" not in "\n".join(break_even_section([result]))


@pytest.mark.parametrize("result", [make_instant(kind="interpreter"), make_instant(), make_instant({})])
def test_without_what_a_curve_needs_there_is_no_section(result: dict[str, Any]) -> None:
    assert break_even_section([result]) == []


def test_pruned_layers_are_a_section_of_their_own_with_the_dense_product_beside_them() -> None:
    full = make_row(
        "full", nnz=200_000, routines={}, dense={"routine": "cublas_mv_float32", "us": 20.0, "cold_us": 50.0}
    )
    lines = report([make_suite(full, make_row("thin"), kind="layers")]).split("\n")
    assert "### Pruned layers: spmv float32" in lines
    assert "| 15.0% to 25.0% | 1 | 2.00x | 4.00x | 2.00x | 5.00x | 2.50x | 50.00x | 1.05x |" in lines
    assert "| 0.0% to 4.5% | 1 | 2.00x | - | - | - | - | 50.00x | 1.05x |" in lines
    assert "| all | 2 | 2.00x | 4.00x | 2.00x | 5.00x | 2.50x | 50.00x | 1.05x |" in lines
    assert "| full | 1000 x 1000 | 20.0% | cusparse_coo_alg1 | 10.00 | csr_vector | 5.00 | 2.00x | 20.00 |" in lines
    assert "## spmv float32 on NVIDIA H200" not in lines
    assert "Sputnik" not in "\n".join(lines)


def test_a_cold_dense_time_that_the_host_was_late_for_is_left_out_by_name() -> None:
    late = make_row("late", nnz=200_000, dense={"routine": "cublas_mv_float32", "us": 20.0, "cold_us": 401.0})
    lines = report([make_suite(late, kind="layers")]).split("\n")
    assert "| 15.0% to 25.0% | 1 | 2.00x | 4.00x | 2.00x | - | - | 50.00x | 1.05x |" in lines
    assert "Left out of cold dense times, for the host was late: late." in lines


def test_sputnik_stands_beside_the_layers_that_it_was_timed_on() -> None:
    sputnik = {"routine": "sputnik_rows_by_length", "us": 6.0, "cold_us": 15.0, "error_of_bound": 0.1}
    faster = make_row("faster", nnz=200_000, sputnik={**sputnik, "us": 4.0})
    slower = make_row("slower", nnz=200_000, sputnik={**sputnik, "us": 9.0})
    rows = [faster, slower, make_row("refused", sputnik_failed="rows_by_length: 3 entries are wrong")]
    workload = {"operation": "spmm", "num_dense_cols": 8}
    lines = report([make_suite(*rows, kind="dlmc", sputnik="sha256_0123", **workload)]).split("\n")
    assert "### DLMC: spmm float32, 8 columns" in lines
    assert "Slower than Sputnik, warm, with fallback: 1 of 2: faster (0.80x)." in lines
    assert "- refused: rows_by_length: 3 entries are wrong" in lines
    assert any("sources sha256_0123" in line for line in lines)
    assert "| 15.0% to 25.0% | 2 | 2.00x | - | - | - | - | 1.20x | 0.60x | 1.50x | 0.75x | 50.00x | 1.05x |" in lines
    assert "| 0.0% to 4.5% | 1 | 2.00x | - | - | - | - | - | - | - | - | 50.00x | 1.05x |" in lines
    shown = "1000 x 1000 | 20.0% | cusparse_coo_alg1 | 10.00 | csr_vector | 5.00 | 2.00x | -"
    assert f"| faster | {shown} | 4.00 | 0.80x | 1.50x |" in lines
    assert f"| slower | {shown} | 9.00 | 1.80x | 1.50x |" in lines
    assert not any(line.startswith("## Pruned layers") for line in lines)


def test_layers_on_which_our_kernel_loses_are_compared_with_the_routine_that_is_answered() -> None:
    sputnik = {"routine": "sputnik_rows_by_length", "us": 12.0, "cold_us": 15.0, "error_of_bound": 0.1}
    lost = make_row("lost", make_kernel(us=20), sputnik=sputnik)
    lines = report([make_suite(lost, kind="layers", sputnik="sha256_0123")]).split("\n")
    assert "| all | 1 | 1.00x | - | - | - | - | 1.20x | 1.20x | 0.75x | 0.75x | 50.00x | 1.05x |" in lines
