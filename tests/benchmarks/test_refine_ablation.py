"""What the ablation of the loop tells of a model."""

from typing import Any

import pytest

from benchmarks.tuning.refine_ablation import model_figures, pass_at, written_of
from sparsesmith_proto.kernel import Candidate, Evaluation, FromFamily, Mismatch, Outcome, Written
from tests.generator.reports import make_passed, make_timing

WRONG = Mismatch(message="wrong")
ROW = {"answers": 6, "passed": 2, "prompt_tokens": 10, "completion_tokens": 20, "seconds": 1.5}


def make_evaluation(number: int, outcome: Outcome, parent: str | None, **settings: int | str) -> Evaluation:
    origin = Written(
        writer="endpoint",
        model="m",
        parent=parent,
        generation=1,
        report="",
        prompt_tokens=100,
        completion_tokens=7 if number % 2 else None,
        seconds=0.5,
    )
    candidate = Candidate(candidate_id=f"w{number}", program="//@ task dot", origin=origin, settings=settings)
    return Evaluation(candidate=candidate, outcome=outcome)


def test_answers_are_counted_and_those_from_words_alone_apart() -> None:
    family = FromFamily(family="f", parameters={})
    first = Candidate(candidate_id="f0", program="", origin=family)
    evaluations = [
        Evaluation(candidate=first, outcome=make_passed(make_timing(1.0))),
        make_evaluation(1, WRONG, None),
        make_evaluation(2, make_passed(make_timing(2.0)), None),
        make_evaluation(3, make_passed(make_timing(1.0)), "w2"),
        make_evaluation(4, make_passed(make_timing(0.5)), "w2", BLOCK=64),
    ]
    assert written_of(evaluations) == {
        "answers": 3,
        "passed": 2,
        "direct": 2,
        "direct_passed": 1,
        "prompt_tokens": 300,
        "completion_tokens": 14,
        "seconds": 1.5,
    }
    assert written_of(evaluations[:1]) == {}


def test_the_chance_that_one_of_several_answers_passes() -> None:
    assert pass_at(1, 10, 3) == pytest.approx(0.3)
    assert pass_at(5, 10, 1) == pytest.approx(0.5)
    assert (pass_at(5, 5, 0), pass_at(5, 6, 2)) == (0.0, 1.0)


def test_a_models_figures_are_means_over_tasks() -> None:
    rows: list[dict[str, Any]] = [
        {"task": "dot", "written": {**ROW, "direct": 5, "direct_passed": 1}},
        {"task": "dot", "written": {**ROW, "direct": 5, "direct_passed": 0}},
        {"task": "sum", "written": {**ROW, "passed": 0, "direct": 2, "direct_passed": 0}},
        {"task": "copy"},
    ]
    assert model_figures(rows) == {
        "solved": 1,
        "pass_at_1": 0.05,
        "pass_at_5": 0.5,
        "answers": 18,
        "prompt_tokens": 30,
        "completion_tokens": 60,
        "seconds": 4.5,
    }
    assert model_figures([{"task": "dot"}]) == {}
