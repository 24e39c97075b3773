"""When a search had what it ended with."""

from benchmarks.measure.contest import Contest
from sparsesmith_proto.kernel import Evaluation, Outcome, Rejected
from tests.generator.reports import make_baselines, make_candidate, make_passed, make_timing


def brief(us: float) -> Outcome:
    return make_passed(make_timing(us).model_copy(update={"is_final": False}))


def final(us: float) -> Outcome:
    return make_passed(make_timing(us).model_copy(update={"is_final": True}))


def contest_of(*outcomes: Outcome) -> Contest:
    """One program a second of the device."""
    evaluations = tuple(
        Evaluation(candidate=make_candidate(f"c{number}", f"program {number}"), outcome=outcome)
        for number, outcome in enumerate(outcomes)
    )
    graded_at_s = {each.candidate.program: number + 1.0 for number, each in enumerate(evaluations)}
    baselines = make_baselines(make_timing(10), make_timing(12))
    return Contest(baselines, evaluations, (), None, {}, 9.0, graded_at_s)


def test_a_search_had_its_winner_when_that_program_was_first_graded() -> None:
    contest = contest_of(final(8.2), final(8.0), brief(9.0))
    assert (contest.winner_at_s, contest.as_good_at_s) == (2.0, 2.0)


def test_a_program_within_one_percent_of_the_end_would_have_done() -> None:
    contest = contest_of(brief(9.0), final(8.07), final(8.09), final(8.0))
    assert (contest.winner_at_s, contest.as_good_at_s) == (4.0, 2.0)


def test_a_brief_time_below_the_winners_does_not_win_but_is_as_good() -> None:
    contest = contest_of(brief(7.9), final(8.0))
    assert (contest.winner_at_s, contest.as_good_at_s) == (2.0, 1.0)


def test_where_nothing_passed_nothing_was_reached() -> None:
    contest = contest_of(Rejected(message="no"))
    assert (contest.winner_at_s, contest.as_good_at_s) == (None, None)
