"""What the ablation of the loop tells of a model."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report.results import pass_at
from benchmarks.tuning.refine_ablation import Here, Turn, Waits, model_figures, summarize, written_of
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, FromFamily, Mismatch, Outcome, Written
from tests.generator.reports import make_passed, make_timing, report_for
from tests.transport.messages import make_job

WRONG = Mismatch(message="wrong")
FAMILIES = {"source": "families", "proposed": 4, "passed": 4}
WRITING = {"answers": 7, "prompt_tokens": 10, "completion_tokens": 20, "seconds": 1.5}


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
        "graded": 3,
        "passed": 2,
        "direct": 2,
        "direct_passed": 1,
    }
    assert written_of(evaluations[:1]) == {}


def test_the_chance_that_one_of_several_answers_passes() -> None:
    assert pass_at(1, 10, 3) == pytest.approx(0.3)
    assert pass_at(5, 10, 1) == pytest.approx(0.5)
    assert (pass_at(5, 5, 0), pass_at(5, 6, 2)) == (0.0, 1.0)


def make_row(task: str, **written: int) -> dict[str, Any]:
    """Of a search whose model answered; without numbers none of its answers was graded."""
    sources = [FAMILIES, {"source": "text", "proposed": 5, "writing": WRITING}]
    return {"task": task, "sources": sources, **({"written": written} if written else {})}


def test_a_models_figures_are_means_over_tasks() -> None:
    rows = [
        make_row("dot", graded=6, passed=2, direct=5, direct_passed=1),
        make_row("dot", graded=6, passed=2, direct=5, direct_passed=0),
        make_row("sum", graded=5, passed=0, direct=2, direct_passed=0),
        {"task": "copy", "sources": [FAMILIES]},
    ]
    assert model_figures(rows) == {
        "tasks": 2,
        "solved": 1,
        "pass_at_1": 0.05,
        "pass_at_5": 0.5,
        "graded": 17,
        "answers": 21,
        "prompt_tokens": 30,
        "completion_tokens": 60,
        "seconds": 4.5,
    }
    assert model_figures(rows[3:]) == {}


def test_answers_that_no_time_was_left_to_grade_are_counted_too(tmp_path: Path) -> None:
    result = {"kind": "refine_ablation", "model": {}, "rows": [make_row("softmax"), make_row("layer_norm")]}
    path = tmp_path / "refine-ablation.json"
    path.write_text(json.dumps(result))
    summarize(path)
    figures = {
        "tasks": 2,
        "solved": 0,
        "pass_at_1": None,
        "pass_at_5": None,
        "graded": 0,
        "answers": 14,
        "prompt_tokens": 20,
        "completion_tokens": 40,
        "seconds": 3.0,
    }
    assert json.loads(path.read_text()) == result | {"model": figures}


def test_a_searchs_seconds_stand_still_while_it_waits_for_the_grades_of_others() -> None:
    """Three jobs of two searches, a second each: the second search waits for the first one's, its own second job beside
    its first is no wait."""

    def grade(job: EvaluationJob) -> EvaluationReport:
        time.sleep(1)
        return report_for(job)

    async def waited() -> tuple[Waits, Waits]:
        turn, first, second = Turn(grade), Waits(), Waits()
        jobs = [Here(turn, waits).grade(make_job()) for waits in (first, second, second)]
        await asyncio.gather(*jobs)
        return first, second

    first, second = asyncio.run(waited())
    assert first.seconds < 0.5
    assert 0.75 < second.seconds < 1.75
    assert (second.num_waiting, second.num_graded) == (0, 0)


def test_a_job_that_is_given_up_waits_no_longer() -> None:
    async def given_up() -> Waits:
        turn, waits = Turn(report_for), Waits()
        await turn.lock.acquire()
        job = asyncio.create_task(Here(turn, waits).grade(make_job()))
        await asyncio.sleep(0.05)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        return waits

    waits = asyncio.run(given_up())
    assert (waits.num_waiting, waits.num_graded) == (0, 0)
    waited_s = waits.seconds
    assert waited_s > 0
    time.sleep(0.01)
    assert waits.seconds == waited_s


def test_a_job_that_is_given_up_while_it_is_graded_keeps_the_device_until_it_ends() -> None:
    under_way = list[str]()

    def grade(job: EvaluationJob) -> EvaluationReport:
        assert not under_way, "two jobs at once"
        under_way.append(job.job_id)
        time.sleep(0.2)
        under_way.clear()
        return report_for(job)

    async def given_up() -> EvaluationReport:
        turn = Turn(grade)
        first = asyncio.create_task(Here(turn, Waits()).grade(make_job("first")))
        while not under_way:
            await asyncio.sleep(0.01)
        first.cancel()
        return await Here(turn, Waits()).grade(make_job("second"))

    assert asyncio.run(given_up()).job_id == "second"
