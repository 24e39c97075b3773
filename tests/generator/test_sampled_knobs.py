"""What samples leave open is tried where the sample is worth it, the setting of first values first."""

from typing import Any

from services.evaluator.candidates import fill_numbers, parse_candidates
from services.evaluator.jobs import reward_records
from services.generator.search.sampled_knobs import MOST_SETTINGS, NOT_FAR_BEHIND, SampledKnobs
from services.generator.search.standing import Batch, Standing
from sparsesmith.operations import Problem
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, Mismatch, Outcome, Rejected, Sampled
from tests.generator.orders import make_pattern, make_prompt, make_task, make_workload
from tests.generator.reports import make_passed, make_report, make_timing
from tests.generator.test_program_knobs import program_with

PATTERN = make_pattern()
WORKLOAD = make_workload(PATTERN)
PROBLEM = Problem(WORKLOAD, PATTERN)
BLOCKS = program_with(BLOCK="64 128 256")


def sample(text: str, candidate_id: str = "s0", **changes: Any) -> Candidate:
    origin = Sampled(
        prompt=make_prompt(),
        group="g",
        token_ids=(1,),
        logprobs=(-1.0,),
        temperature=1,
        first_version=0,
        last_version=0,
    )
    return Candidate(candidate_id=candidate_id, program=text, origin=origin, **changes)


def told(standing: Standing, *graded: tuple[Candidate, Outcome]) -> EvaluationReport:
    """A report of candidates, their numbers filled in as evaluators do."""
    evaluations = []
    for candidate, outcome in graded:
        (each,) = parse_candidates(fill_numbers([candidate], PROBLEM, 132), PROBLEM)
        found = each.program if isinstance(each.program, Rejected) else outcome
        evaluations.append(Evaluation(candidate=each.candidate, outcome=found))
    report = make_report([]).model_copy(update={"evaluations": tuple(evaluations)})
    standing.add(report)
    return report


def passed(us: float) -> Outcome:
    return make_passed(make_timing(us))


def blocks_of(batch: Batch) -> set[int | str]:
    return {each.settings["BLOCK"] for each in batch}


def test_the_other_settings_of_a_good_sample_are_tried() -> None:
    knobs, standing = SampledKnobs(make_task(PATTERN)), Standing()
    told(standing, (sample(BLOCKS), passed(5)))
    batch = knobs.next_batch(8, standing)
    assert blocks_of(batch) == {128, 256}
    assert all(each.program == BLOCKS and isinstance(each.origin, Sampled) for each in batch)
    assert len({each.candidate_id for each in batch} | {"s0"}) == 3
    told(standing, *((each, passed(4)) for each in batch))
    assert knobs.next_batch(8, standing) == ()


def test_a_raw_answer_with_knobs_is_as_good() -> None:
    knobs, standing = SampledKnobs(make_task(PATTERN)), Standing()
    told(standing, (sample(f"Here:\n```\n{BLOCKS}```\n"), passed(5)))
    assert blocks_of(knobs.next_batch(8, standing)) == {128, 256}


def test_nothing_is_tried_of_a_sample_that_is_far_behind_or_wrong_or_leaves_nothing_open() -> None:
    knobs, standing = SampledKnobs(make_task(PATTERN)), Standing()
    told(
        standing,
        (
            sample(program_with(BLOCK="32").replace("//@ tune BLOCK = 32\n", "").replace("BLOCK", "32"), "plain"),
            passed(4),
        ),
        (sample(BLOCKS, "slow"), passed(4 * NOT_FAR_BEHIND + 0.1)),
        (sample(program_with(BLOCK="96 128"), "wrong"), Mismatch(message="row 3")),
    )
    assert knobs.next_batch(8, standing) == ()


def test_the_most_promising_sample_goes_first_and_one_text_counts_once() -> None:
    knobs, standing = SampledKnobs(make_task(PATTERN)), Standing()
    other = program_with(BLOCK="96 160 192")
    told(
        standing, (sample(BLOCKS, "a"), passed(5)), (sample(BLOCKS, "b"), passed(5)), (sample(other, "c"), passed(4.5))
    )
    first = knobs.next_batch(8, standing)
    assert blocks_of(first) == {160, 192}
    second = knobs.next_batch(8, standing)
    assert blocks_of(second) == {128, 256}
    assert knobs.next_batch(8, standing) == ()


def test_one_sample_does_not_take_the_whole_search() -> None:
    knobs, standing = SampledKnobs(make_task(PATTERN)), Standing()
    told(standing, (sample(program_with(BLOCK=" ".join(map(str, range(32, 96))))), passed(5)))
    tried = 0
    while batch := knobs.next_batch(8, standing):
        tried += len(batch)
        told(standing, *((each, passed(5 - tried / 100)) for each in batch))
    assert 8 < tried < MOST_SETTINGS


def test_the_sample_is_learned_from_at_its_first_values_alone() -> None:
    standing = Standing()
    candidates = (sample(BLOCKS), sample(BLOCKS, "s0-k-1", settings={"BLOCK": 128}))
    job = EvaluationJob(job_id="e1", workload=WORKLOAD, candidates=candidates)
    report = told(standing, *((each, passed(5)) for each in candidates))
    records = reward_records(job, report, report.baselines.best_routine().timing)
    assert [record.candidate.candidate_id for record in records] == ["s0"]
    scaled = job.model_copy(update={"workload": WORKLOAD.model_copy(update={"alpha_beta": True})})
    assert reward_records(scaled, report, report.baselines.best_routine().timing) == []
