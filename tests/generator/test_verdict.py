import pytest

from services.generator.search.verdict import Progress, break_even, conclude, library_break_even
from sparsesmith.cli.rendering import verdict
from sparsesmith_proto.api import BreakEven, LibraryAnswer, TunedAnswer
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Baselines, CompileFailed
from tests.generator.orders import make_task
from tests.generator.reports import (
    make_baselines,
    make_baselines_of_a_transpose,
    make_estimate,
    make_passed,
    make_report,
    make_timing,
)


def progress_after(*reports: EvaluationReport) -> Progress:
    progress = Progress(make_task())
    for report in reports:
        progress.add(report)
    return progress


def test_a_kernel_that_is_faster_beyond_the_noise_wins() -> None:
    report = conclude(progress_after(make_report([make_passed(make_timing(5)), make_passed(make_timing(8))])))
    assert isinstance(report.answer, TunedAnswer)
    assert report.answer.best.candidate.candidate_id == "c0"
    assert report.answer.speedup_over_best == pytest.approx(2)
    assert report.answer.speedup_over_default == pytest.approx(2.4)


def test_less_than_two_percent_is_no_win() -> None:
    report = conclude(progress_after(make_report([make_passed(make_timing(9.85))])))
    assert isinstance(report.answer, LibraryAnswer)
    assert report.answer.routine == "cusparse_coo_alg1"
    assert "1.02x" in report.answer.reason
    assert report.answer.closest is not None


def test_overlapping_intervals_are_no_win() -> None:
    report = conclude(progress_after(make_report([make_passed(make_timing(9, spread=0.2))])))
    assert isinstance(report.answer, LibraryAnswer)
    assert "noise" in report.answer.reason


def test_a_sure_winner_is_preferred_to_a_faster_one_within_the_noise() -> None:
    noisy, sure = make_passed(make_timing(7, spread=0.6)), make_passed(make_timing(8))
    report = conclude(progress_after(make_report([noisy, sure])))
    assert isinstance(report.answer, TunedAnswer)
    assert report.answer.best.outcome == sure


def test_a_brief_time_does_not_win_over_one_of_the_finals() -> None:
    brief = make_passed(make_timing(4.9))
    final = make_passed(make_timing(5).model_copy(update={"is_final": True}))
    report = conclude(progress_after(make_report([brief, final])))
    assert isinstance(report.answer, TunedAnswer)
    assert report.answer.best.outcome == final


def test_an_estimate_never_beats_a_measurement() -> None:
    report = conclude(progress_after(make_report([make_passed(make_estimate(1))])))
    assert isinstance(report.answer, LibraryAnswer)


def test_estimates_are_compared_with_estimates() -> None:
    baselines = make_baselines(make_estimate(10), make_estimate(12))
    report = conclude(progress_after(make_report([make_passed(make_estimate(5))], baselines)))
    assert isinstance(report.answer, TunedAnswer)


def test_a_kernel_on_one_copy_is_held_against_routines_that_need_no_other() -> None:
    baselines = make_baselines_of_a_transpose(make_timing(22), make_timing(6))
    report = conclude(progress_after(make_report([make_passed(make_timing(10))], baselines)))
    assert isinstance(report.answer, TunedAnswer)
    assert report.answer.speedup_over_best == report.answer.speedup_over_default == pytest.approx(2.2)
    assert report.answer.break_even.products_against_best is not None
    copied = report.baselines.best_on_a_copy()
    assert copied is not None and copied.routine == "cusparse_copy_csr_alg2"
    assert "on a copy of A^T the library takes 6.00 us (cusparse_copy_csr_alg2)" in verdict(report)


def test_what_a_routine_on_a_copy_takes_is_said_where_no_kernel_wins() -> None:
    baselines = make_baselines_of_a_transpose(make_timing(10), make_timing(6))
    report = conclude(progress_after(make_report([make_passed(make_timing(9.9))], baselines)))
    assert isinstance(report.answer, LibraryAnswer)
    assert report.answer.routine == "cusparse_csr_default"
    assert "(cusparse_copy_csr_alg2 6.00 us (5.99 to 6.01), on a copy of A^T): 1.01x, under" in report.answer.reason


def test_where_every_routine_needs_a_copy_the_fastest_of_them_is_the_rival() -> None:
    baselines = make_baselines_of_a_transpose(make_timing(10), make_timing(6))
    alone = Baselines(default="cusparse_copy_csr_alg2", routines=baselines.routines[1:])
    report = conclude(progress_after(make_report([make_passed(make_timing(9))], alone)))
    assert isinstance(report.answer, LibraryAnswer)
    assert report.answer.routine == "cusparse_copy_csr_alg2"
    assert "on a copy of A^T" not in report.answer.reason


def test_without_a_passed_candidate_the_library_is_the_answer() -> None:
    report = conclude(progress_after(make_report([CompileFailed(log=""), CompileFailed(log="")])))
    assert report.answer == LibraryAnswer(
        routine="cusparse_coo_alg1",
        reason="none of 2 candidates passed",
        closest=None,
        break_even=library_break_even(
            make_baselines(make_timing(10), make_timing(12)), report.answer.break_even.tuning_s
        ),
    )
    assert report.search.outcomes == {"compile_failed": 2}


def test_break_even_counts_tuning_and_conversion_less_the_librarys_own_preparation() -> None:
    baselines = make_baselines(make_timing(10), make_timing(12), preparation_ms=100)
    best = progress_after(make_report([make_passed(make_timing(5), conversion_ms=600)], baselines)).best
    assert best is not None
    repaid = break_even(best, tuning_s=2.0)
    assert repaid.products_against_best == (2_000_000 + 600_000 - 100_000) / 5
    assert repaid.products_against_default == -(-2_600_000 // 7)


def test_a_kernel_that_is_not_faster_never_breaks_even() -> None:
    best = progress_after(make_report([make_passed(make_timing(11))])).best
    assert best is not None
    repaid = break_even(best, tuning_s=2.0)
    assert repaid.products_against_best is None
    assert repaid.products_against_default is not None


def test_estimated_times_give_an_estimated_break_even() -> None:
    baselines = make_baselines(make_estimate(10), make_estimate(12))
    report = conclude(progress_after(make_report([make_passed(make_estimate(5))], baselines)))
    assert report.answer.break_even.kind == "estimated"


def test_a_time_of_another_kind_repays_nothing() -> None:
    best = progress_after(make_report([make_passed(make_estimate(1))])).best
    assert best is not None
    repaid = break_even(best, tuning_s=2.0)
    assert (repaid.products_against_best, repaid.products_against_default) == (None, None)


def test_a_library_answer_never_repays_itself_against_the_best_but_may_against_the_default() -> None:
    baselines = make_baselines(make_timing(10), make_timing(12), preparation_ms=100)
    assert library_break_even(baselines, tuning_s=2.0) == BreakEven(
        kind="measured",
        conversion_ms=100,
        tuning_s=2.0,
        products_against_best=None,
        products_against_default=(2_000_000 + 100_000) // 2,
    )


def test_a_library_answer_that_is_the_default_never_repays_itself() -> None:
    baselines = make_baselines(make_timing(12), make_timing(10))
    repaid = library_break_even(baselines, tuning_s=2.0)
    assert (repaid.products_against_best, repaid.products_against_default) == (None, None)


def test_what_the_librarys_preparation_costs_more_is_repaid_at_once() -> None:
    baselines = make_baselines(make_timing(10), make_timing(12), preparation_ms=10_000)
    best = progress_after(make_report([make_passed(make_timing(5))], baselines)).best
    assert best is not None
    assert break_even(best, tuning_s=2.0).products_against_best == 0
