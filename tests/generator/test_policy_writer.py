"""`refine` with the service's policy, shown a program and its report: a real engine on a tiny random policy."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from services.generator.policy.sampling import PolicySampler, SamplingOptions
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.chains import OF_KNOBS
from services.generator.search.grading import GradingLimits, graded
from services.generator.search.trials import told_origin
from services.generator.writing import Ask, Attempt, NothingNew, Writers
from services.generator.writing.policy import Editor, PolicyWriter
from services.generator.writing.texts import program_in, program_shown_of
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import BatchRules, RecordReader, UsableRecord, assemble_samples
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import MatrixPrompts
from services.trainer.policy_model import PolicyNetworks
from sparsesmith.errors import InvalidOption
from sparsesmith.families import FamilyInstance, propose
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.policy.embedding import MAX_PARENT_TOKENS, refinement_token_ids, text_token_ids
from sparsesmith.program.numbers import is_open
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.prompts.refinement import refinement_parent
from sparsesmith_proto.api import FromPolicy, Refinement, SourceReport
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    Evaluation,
    FromFamily,
    Mismatch,
    Outcome,
    Rejected,
    Sampled,
    UserWritten,
    Workload,
)
from sparsesmith_proto.message import Digest
from sparsesmith_proto.reward import RewardRecord
from tests.families import golden
from tests.generator.conftest import LivePolicy
from tests.generator.orders import make_pattern, make_task
from tests.generator.reports import make_device, make_passed, make_report, make_timing
from tests.generator.test_mutate_search import Graders, by_text
from tests.generator.tiny_policy import make_tokenizer

PATTERN = make_pattern(60, 50)


def make_editor(live: LivePolicy, max_program_tokens: int = 24) -> Editor:
    sampler = PolicySampler(live.host, live.writer, SamplingOptions("sm_90", 1.0, max_program_tokens))
    return Editor(sampler, "tiny-0", at_once=8)


class EverySecondFails:
    """Families pass; of what the policy writes, the first, the third and so on do not compile."""

    def __init__(self) -> None:
        self._num_sampled = 0

    def __call__(self, candidate: Candidate) -> Outcome:
        self._num_sampled += isinstance(candidate.origin, Sampled)
        if isinstance(candidate.origin, Sampled) and self._num_sampled % 2:
            return CompileFailed(log="program.cu(1): error: expected a declaration")
        return by_text(candidate)


def refined(
    live: LivePolicy, grade: Callable[[Candidate], Outcome], candidates: int = 60, **loop: Any
) -> tuple[dict[str, Evaluation], SourceReport]:
    """Everything that was graded, by candidate, and the account of the policy's edits."""
    chosen = {"writer": "policy", "children": 3, "generations": 3, "beam": 2, **loop}
    task = make_task(PATTERN, candidates=candidates, seconds=100, search="refine", refine=chosen)
    graders, standing = Graders(grade), Standing()
    editor = make_editor(live)

    async def run() -> None:
        sources = Sources(editor.sampler, 16, 16, writers=Writers(editor=editor))
        batches = STRATEGIES["refine"](task, sources, candidates, standing)
        async for report in graded(batches, task, graders, GradingLimits(2, 1), standing.lost):
            standing.add(report)

    live.run(asyncio.wait_for(run(), 240))
    (source,) = [each for each in standing.sources() if each.source == "edits"]
    return {each.candidate.candidate_id: each for each in graders.evaluations}, source


def edits(evaluations: dict[str, Evaluation]) -> dict[str, Sampled]:
    return {
        name: each.candidate.origin for name, each in evaluations.items() if isinstance(each.candidate.origin, Sampled)
    }


class OnePattern:
    """A store that has one pattern."""

    def get(self, digest: Digest) -> Pattern:
        assert digest == PATTERN.digest
        return PATTERN


def read_by_the_trainer(evaluation: Evaluation) -> UsableRecord:
    rules = BatchRules("structural", vocabulary=384, max_text_tokens=2000, max_policy_age=4, reward="milestone")
    record = RewardRecord(
        record_id="r",
        workload=make_task(PATTERN).order.workload,
        candidate=evaluation.candidate,
        outcome=evaluation.outcome,
        best_baseline_us=10,
        default_baseline_us=12,
        device=make_device(),
        rewards={"milestone": 0.5},
    )
    # As it travels.
    record = RewardRecord.model_validate_json(record.model_dump_json())
    read = RecordReader(OnePattern(), MatrixPrompts("structural", make_tokenizer()), rules).read(record, 0)
    assert isinstance(read, UsableRecord), read
    return read


def test_the_policy_is_shown_programs_with_their_reports_and_the_trainer_writes_the_same_prompts(
    live_policy: LivePolicy,
) -> None:
    evaluations, source = refined(live_policy, EverySecondFails())
    of_policy = edits(evaluations)
    assert len(of_policy) > 6, "three children of two programs, and repairs"
    children = Counter(origin.parent for origin in of_policy.values())
    assert all(
        count == (3 if evaluations[parent or ""].outcome.outcome == "passed" else 1)
        for parent, count in children.items()
    )
    learner = Learner(
        PolicyNetworks(live_policy.policy.model, live_policy.policy.encoder), LearnerOptions(algorithm="rloo")
    )
    outcomes = Counter[str]()
    for name, origin in of_policy.items():
        assert origin.parent is not None
        parent = evaluations[origin.parent]
        # What a random policy writes may hold fences, of which the program alone is shown.
        told = refinement_parent(program_in(parent.candidate.program), parent.outcome, 10.0)
        assert origin.prompt.parent == told
        before = of_policy.get(origin.parent)
        assert origin.generation == 1 + (before.generation if before is not None else 0)
        outcomes[parent.outcome.outcome] += 1
        assert told_origin(origin) == FromPolicy(
            group=origin.group,
            first_version=0,
            last_version=0,
            temperature=1.0,
            parent=origin.parent,
            generation=origin.generation,
            report=told.report,
        )
        assert name.partition(OF_KNOBS)[1] == ""
    assert outcomes["passed"] > 0
    assert outcomes["compile_failed"] > 0, "failures are repaired"
    chosen = [evaluations[name] for name in list(of_policy)[:6]]
    read = [read_by_the_trainer(each) for each in chosen]
    for each in read:
        shown = each.sampled.prompt.parent
        assert shown is not None
        bos = make_tokenizer().token_to_id("<bos>")
        assert list(each.asked.text_ids) == [*refinement_token_ids(make_tokenizer(), shown.program, shown.report), bos]
    batch = assemble_samples([each.sampled for each in read], [each.asked for each in read])
    torch.testing.assert_close(learner.logprobs(batch), batch.behaviour_BT, atol=2e-2, rtol=0)
    assert source.writing is not None
    assert source.writing.model == "tiny-0"
    assert source.writing.answers >= source.proposed == len(of_policy)
    assert source.writing.repairs == outcomes["compile_failed"]
    assert source.writing.prompt_tokens > 64 * len(of_policy)


def test_children_of_one_program_are_one_group_of_the_size_that_was_asked_for(live_policy: LivePolicy) -> None:
    of_policy = edits(refined(live_policy, by_text, children=4, generations=1, beam=2)[0])
    groups = Counter((origin.group, origin.parent, origin.group_size) for origin in of_policy.values())
    assert len({group for group, _, _ in groups}) == len({parent for _, parent, _ in groups}) == len(groups)
    assert {size for _, _, size in groups} == {4}
    assert max(groups.values()) == 4


def attempt_at(program: str, outcome: Outcome | None = None) -> Attempt:
    origin = Sampled(
        prompt=make_editor_prompt(), group="g", token_ids=(1,), logprobs=(0.0,), temperature=1, first_version=0,
        last_version=0,
    )  # fmt: skip
    candidate = Candidate(candidate_id="c0", program=program, origin=origin)
    return Attempt(candidate, outcome or make_passed(make_timing(5.0)), make_report([]))


def make_editor_prompt() -> Any:
    return SamplingOptions("sm_90", 1.0, 24).prompt("structural", 1)


@pytest.mark.parametrize(
    ("num_chars", "max_program_tokens", "said"),
    [
        (4000, 24, rf"a parent of \d{{4}} tokens: the policy is shown at most {MAX_PARENT_TOKENS}"),
        (700, 1500, r"a prompt of \d{3} tokens and 1500 more do not fit a context of 2048"),
    ],
)
def test_a_parent_that_is_too_long_is_skipped_with_both_numbers_and_the_engine_lives(
    live_policy: LivePolicy, num_chars: int, max_program_tokens: int, said: str
) -> None:
    words = np.random.default_rng(0).integers(97, 123, num_chars)
    program = f"//@ format csr\n// {''.join(map(chr, words))}\n"
    task = make_task(PATTERN, search="refine", refine={"writer": "policy"})
    writer = PolicyWriter(task, make_editor(live_policy, max_program_tokens), children=2)

    async def ask() -> Candidate:
        return await writer.write(Ask(0, attempt_at(program), 0))

    for _ in range(2):
        with pytest.raises(NothingNew, match=said):
            live_policy.run(ask())
    assert writer.account.failures == {"too long": 1}, "of the parent, not of each child"
    assert live_policy.host.engine is not None
    short = PolicyWriter(task, make_editor(live_policy), children=2)
    candidate = live_policy.run(short.write(Ask(0, attempt_at("//@ format csr\n"), 0)))
    assert isinstance(candidate.origin, Sampled)
    assert candidate.origin.group_size == 2


BINS_PATTERN = golden.PATTERNS["five points"]()
"""Of which `row_bins` has a program."""


def of_row_bins() -> FamilyInstance:
    found = propose(BINS_PATTERN, "spmv", "float32", limit=200)
    return next(each for each in found if each.family == "row_bins")


def named_and_graded(instance: FamilyInstance, **changes: Any) -> Candidate:
    origin = FromFamily(family=instance.family, parameters=dict(instance.parameters))
    return Candidate(**{"candidate_id": "c0", "program": instance.program, "origin": origin, **changes})


def shown_of(candidate: Candidate, pattern: Pattern = BINS_PATTERN, outcome: Outcome | None = None) -> str:
    problem = Problem(make_task(pattern).order.workload, pattern)
    return program_shown_of(candidate, outcome or make_passed(make_timing(5.0)), problem, 132)


def test_a_parent_is_shown_with_names_where_they_are_known_to_come_to_what_was_graded() -> None:
    instance = of_row_bins()
    assert is_open(instance.written)
    assert not is_open(instance.program)
    of_user = UserWritten()
    assert shown_of(named_and_graded(instance, written=instance.written)) == instance.written, "as it was proposed"
    assert shown_of(named_and_graded(instance)) == instance.written, "of a family, though graded without names"
    assert shown_of(named_and_graded(instance, written=instance.written, origin=of_user)) == instance.written
    assert shown_of(named_and_graded(instance, origin=of_user)) == instance.program, "nobody knows its names"
    assert shown_of(named_and_graded(instance), make_pattern(60, 50)) == instance.program, "other facts"


def test_a_parent_with_knobs_is_shown_at_its_setting() -> None:
    instance = of_row_bins()
    with_knob = "//@ tune AGAIN = 1 2\n" + instance.written
    candidate = named_and_graded(instance, written=with_knob, settings={"AGAIN": 2})
    assert shown_of(candidate) == instance.written
    assert shown_of(named_and_graded(instance, written=with_knob)) == with_knob, "as a policy wrote it"


def test_a_message_that_counts_lines_stands_beside_the_text_that_it_counts_those_of() -> None:
    instance = of_row_bins()
    candidate = named_and_graded(instance, written=instance.written)
    assert shown_of(candidate, outcome=CompileFailed(log="program.cu(9): error")) == instance.program
    assert shown_of(candidate, outcome=Rejected(message="line 9: no")) == instance.written
    assert shown_of(candidate, outcome=Mismatch(message="row 3 is wrong")) == instance.written


def test_a_record_holds_the_names_that_the_policy_was_shown(live_policy: LivePolicy) -> None:
    """So that the trainer writes the same prompt again."""
    named = "//@ let LONGEST = row_length_max\n//@ format csr\n// LONGEST\n"
    attempt = attempt_at(named.partition("\n")[2].replace("LONGEST", "9"))
    attempt = replace(attempt, candidate=attempt.candidate.model_copy(update={"written": named}))
    writer = PolicyWriter(make_task(PATTERN), make_editor(live_policy), children=2)
    candidate = live_policy.run(writer.write(Ask(0, attempt, 0)))
    assert isinstance(candidate.origin, Sampled)
    assert candidate.origin.prompt.parent == refinement_parent(named, attempt.outcome, attempt.baseline_us)


def test_a_program_that_was_graded_twice_is_changed_once(live_policy: LivePolicy) -> None:
    writer = PolicyWriter(make_task(PATTERN), make_editor(live_policy), children=2)
    assert [writer.takes(attempt_at(text)) for text in ("a", "b", "a")] == [True, True, False]


def test_what_the_policy_is_shown_of_a_program_is_what_it_was_trained_on(live_policy: LivePolicy) -> None:
    """Spelt by both: the offline stage's ids, and those of a prompt in service."""
    origin = next(iter(edits(refined(live_policy, by_text, candidates=30)[0]).values()))
    inputs = prompt_inputs(PATTERN, make_task(PATTERN).order.workload, origin.prompt)
    shown = origin.prompt.parent
    assert shown is not None
    tokenizer = make_tokenizer()
    assert shown.report.startswith("passed ")
    assert " us speedup " in shown.report
    assert text_token_ids(tokenizer, inputs)[:-1] == refinement_token_ids(tokenizer, shown.program, shown.report)


def test_a_policy_is_not_asked_for_what_it_does_not_write(live_policy: LivePolicy) -> None:
    writers, refine = Writers(editor=make_editor(live_policy)), Refinement(writer="policy")
    assert writers.names == ("mutate", "policy")
    dot = Workload(operation="dot", element_type="float32", axes={"n": 64})
    with pytest.raises(InvalidOption, match="the policy writes no programs of dot float32") as told:
        writers.check(refine, dot)
    assert told.value.field == "refine.writer"
    task = make_task(PATTERN, search="refine", refine={"writer": "policy"})
    order = task.order.model_copy(update={"workload": dot})
    with pytest.raises(InvalidOption, match="the policy writes no programs of dot"):
        writers.of(replace(task, order=order, problem=Problem(dot)))
    with pytest.raises(InvalidOption, match=r"none of this service's \(it has: mutate\)"):
        Writers().check(refine, task.order.workload)


@pytest.mark.parametrize("is_on", [True, False])
def test_auto_shows_the_policy_the_fastest_only_where_the_settings_say_so(live_policy: LivePolicy, is_on: bool) -> None:
    editor, graders, standing = make_editor(live_policy), Graders(by_text), Standing()
    task = make_task(PATTERN, candidates=120, seconds=100)

    async def run() -> None:
        sources = Sources(None, 16, 16, writers=Writers(editor=editor), edits=is_on)
        batches = STRATEGIES["auto"](task, sources, 120, standing)
        async for report in graded(batches, task, graders, GradingLimits(2, 1), standing.lost):
            standing.add(report)

    live_policy.run(asyncio.wait_for(run(), 120))
    parents = {each.candidate.candidate_id for each in graders.evaluations}
    found = [each.candidate.origin for each in graders.evaluations if isinstance(each.candidate.origin, Sampled)]
    assert bool(found) is is_on
    assert all(each.parent in parents for each in found)
