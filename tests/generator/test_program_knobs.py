"""A user's program with knobs: its own tuner searches them, every setting counts, the answer names the best."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from services.evaluator.candidates import fill_numbers, parse_candidates
from services.generator.evaluation import evaluate_program
from services.generator.orders import EvaluationOrder, KernelOrder, fingerprint, most_candidates, work_of
from services.generator.search.programs import ProgramTask
from services.generator.search.trials import Trials
from sparsesmith.families.knobs import family_of, prospects_of_program
from sparsesmith.families.proposal import work_of as work_for
from sparsesmith.formats.format import ParameterValue
from sparsesmith.operations import Problem
from sparsesmith.program.numbers import MAX_LISTED, knobs_of, listed_settings, num_settings
from sparsesmith_proto.api import Budget, EvaluationAnswer, JobState, Running, TriedCandidate
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, CompileFailed, Evaluation, Outcome, Passed, Rejected
from tests.generator.orders import make_order, make_pattern, make_workload
from tests.generator.reports import make_passed, make_report, make_timing
from tests.program.programs import BODY, make_program

PATTERN = make_pattern()
Settings = dict[str, ParameterValue]
Grade = Callable[[Settings], float | Outcome]


def program_with(**knobs: str) -> str:
    lines = [f"//@ tune {name} = {values}" for name, values in knobs.items()]
    launch = "//@ launch spmv grid=ceil_div(num_rows,BLOCK) block=BLOCK"
    used = f"  // {' '.join(knobs)}\n"
    return "\n".join([*lines, make_program(launch=launch, body=BODY.replace("128", "BLOCK") + used)])


BLOCKS = program_with(BLOCK="32 64 128 256 512 1024")


class BoundEvaluations:
    """Fills numbers in as evaluators do, and answers for each setting what a formula says."""

    def __init__(self, grade: Grade) -> None:
        self._grade = grade
        self.jobs: list[EvaluationJob] = []

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self.jobs.append(job)
        filled = fill_numbers(job.candidates, problem := Problem(job.workload, PATTERN), 132)
        evaluations = tuple(
            Evaluation(
                candidate=each.candidate,
                outcome=each.program if isinstance(each.program, Rejected) else self._outcome(each.candidate),
            )
            for each in parse_candidates(filled, problem)
        )
        return make_report([], job_id=job.job_id).model_copy(update={"evaluations": evaluations})

    def _outcome(self, candidate: Candidate) -> Outcome:
        found = self._grade(dict(candidate.settings))
        return make_passed(make_timing(found)) if isinstance(found, float) else found


class KeptCandidates:
    """A candidate store in memory."""

    def __init__(self) -> None:
        self.tried: list[TriedCandidate] = []

    def clear(self, job_id: str) -> None:
        self.tried.clear()

    def add(self, job_id: str, tried: list[TriedCandidate]) -> None:
        self.tried += tried


def order_of(program: str, **budget: Any) -> EvaluationOrder:
    return EvaluationOrder(workload=make_workload(PATTERN), program=program, budget=Budget(**budget))


def graded(program: str, grade: Grade, **budget: Any) -> tuple[EvaluationAnswer, BoundEvaluations, list[JobState]]:
    evaluations, states = BoundEvaluations(grade), list[JobState]()

    async def tell(state: Running) -> None:
        states.append(state)

    order = order_of(program, **budget)
    task = ProgramTask("job", "job.run", order, Problem(order.workload, PATTERN))
    answer = asyncio.run(evaluate_program(task, evaluations, Trials(KeptCandidates()), tell))  # type: ignore[arg-type]
    return answer, evaluations, states


def slower_away_from(best: int) -> Grade:
    return lambda settings: 2.0 + abs(math.log2(int(settings["BLOCK"]) / best))


def test_the_answer_is_the_best_setting_and_holds_plain_numbers() -> None:
    answer, _, _ = graded(BLOCKS, slower_away_from(256))
    assert answer.evaluation.candidate.settings == {"BLOCK": 256}
    assert "block=256\n" in answer.evaluation.candidate.program
    assert "tune" not in answer.evaluation.candidate.program
    assert answer.evaluation.candidate.written == BLOCKS
    assert answer.knobs is not None
    assert (answer.knobs.num_settings, answer.knobs.num_listed) == (6, 6)


def test_the_setting_of_first_values_is_graded_first() -> None:
    _, evaluations, _ = graded(BLOCKS, slower_away_from(256))
    assert evaluations.jobs[0].candidates[0].settings == {"BLOCK": 32}


def test_every_setting_counts_as_a_candidate_of_the_budget() -> None:
    answer, evaluations, states = graded(BLOCKS, slower_away_from(1024), candidates=3)
    assert sum(len(job.candidates) for job in evaluations.jobs) == 3
    assert answer.knobs is not None
    assert (answer.knobs.num_graded, answer.knobs.outcomes) == (3, {"passed": 3})
    last = states[-1]
    assert isinstance(last, Running)
    assert (last.num_graded, last.budget_candidates) == (3, 3)


def test_the_tuner_finds_the_best_of_a_large_grid_without_trying_all() -> None:
    values = " ".join(map(str, range(1, 33)))
    text = program_with(BLOCK="32 64 128 256 512 1024", A=values, B=values)

    def us(settings: Settings) -> float:
        near = sum(math.log2(int(settings[name]) / best) ** 2 for name, best in (("A", 8), ("B", 16), ("BLOCK", 128)))
        return 5.0 * (1 + 0.1 * near)

    answer, _, _ = graded(text, us, candidates=80)
    assert answer.knobs is not None
    assert answer.knobs.num_settings == 6 * 32 * 32 > answer.knobs.num_listed == MAX_LISTED
    assert answer.knobs.num_graded <= 80
    assert isinstance(answer.evaluation.outcome, Passed)
    assert answer.evaluation.outcome.timing.median_us < 5.0 * 1.05


def test_settings_that_break_a_limit_or_do_not_compile_are_told_and_left_behind() -> None:
    def us(settings: Settings) -> float | Outcome:
        return CompileFailed(log="too much") if settings["BLOCK"] == 64 else float(int(settings["BLOCK"]))

    answer, _, _ = graded(program_with(BLOCK="4096 64 128"), us)
    assert answer.knobs is not None
    assert answer.knobs.outcomes == {"rejected": 1, "compile_failed": 1, "passed": 1}
    assert answer.evaluation.candidate.settings == {"BLOCK": 128}


def test_where_no_setting_passes_the_answer_says_why_the_first_did_not() -> None:
    answer, _, _ = graded(program_with(BLOCK="4096 2048"), slower_away_from(32))
    assert isinstance(answer.evaluation.outcome, Rejected)
    assert "line 3: launch spmv: block.x is 4096, must be from 1 to 1024" in answer.evaluation.outcome.message


def test_settings_that_come_to_the_same_program_are_graded_once() -> None:
    text = program_with(BLOCK="32 64", UNUSED="1 2 3").replace(" UNUSED\n", "\n")
    answer, _, _ = graded(text, slower_away_from(64))
    assert answer.knobs is not None
    assert (answer.knobs.num_settings, answer.knobs.num_graded) == (6, 2)


def test_a_program_without_knobs_is_graded_once() -> None:
    answer, evaluations, states = graded(make_program(), lambda settings: 3.0)
    assert [[each.candidate_id for each in job.candidates] for job in evaluations.jobs] == [["user"]]
    assert answer.knobs is None
    assert states == []


@pytest.mark.parametrize("lines", ["//@ tune B =", "//@ tune B = 1 1", "//@ tune B = 1\n//@ tune B = 2"])
def test_malformed_knobs_are_refused_by_the_evaluator(lines: str) -> None:
    answer, _, _ = graded(f"{lines}\n{make_program()}", lambda settings: 3.0)
    assert isinstance(answer.evaluation.outcome, Rejected)
    assert "line " in answer.evaluation.outcome.message


def test_all_settings_are_listed_up_to_a_bound_and_chosen_beyond_it() -> None:
    values = " ".join(map(str, range(64)))
    knobs = knobs_of(program_with(BLOCK=values, A=values))
    assert len(listed_settings(knobs)) == num_settings(knobs) == 4096
    many = knobs_of(program_with(**dict.fromkeys(("A", "B", "C", "D", "E", "BLOCK"), values)))
    chosen = listed_settings(many)
    assert len({tuple(settings.values()) for settings in chosen}) == len(chosen) == 4096
    assert chosen[0] == dict.fromkeys(("A", "B", "C", "D", "E", "BLOCK"), 0)
    assert chosen == listed_settings(many)
    assert all({each[name] for each in chosen} == set(range(64)) for name in chosen[0])


def test_a_program_with_knobs_is_a_family() -> None:
    family = family_of(BLOCKS, "spmv")
    prospects = prospects_of_program(family, work_for(PATTERN, "float32"))
    assert [entry.parameters for entry in prospects] == [{"BLOCK": 2**power} for power in range(5, 11)]
    assert "block=64\n" in family.render({"BLOCK": 64}, "float32")


def test_an_order_is_as_much_work_as_settings_may_be_graded() -> None:
    assert most_candidates(order_of(BLOCKS)) == 6
    assert most_candidates(order_of(BLOCKS, candidates=4)) == 4
    assert most_candidates(order_of(make_program())) == most_candidates(order_of("no program")) == 1
    problem = Problem(order_of(BLOCKS).workload, PATTERN)
    assert work_of(order_of(BLOCKS), problem) == 6 * work_of(order_of(make_program()), problem)
    assert most_candidates(make_order(PATTERN, candidates=9)) == 9


def test_an_order_of_an_earlier_release_is_read_and_stands_for_the_same() -> None:
    order = order_of(make_program())
    earlier = '{"kind":"evaluation","workload":' + order.workload.model_dump_json() + ',"program":"x"}'
    assert EvaluationOrder.model_validate_json(earlier).budget == Budget()
    assert "budget" not in order.model_dump(exclude={"budget"})
    assert fingerprint(order) != fingerprint(order_of(make_program(), candidates=2))
    assert fingerprint(order) == hash_of_earlier(order)


def hash_of_earlier(order: EvaluationOrder | KernelOrder) -> str:
    """As it was before orders to grade a program had a budget."""
    import hashlib

    return hashlib.sha256(order.model_dump_json(exclude={"work", "budget"}).encode()).hexdigest()
