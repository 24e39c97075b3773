"""Who may propose the next batch: the source that pays, no more for one that does not, all for the last that works."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.generator.policy.folder import PolicyFolder
from services.generator.policy.sampling import PolicySampler
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.allocator import FIXED_CANDIDATES, TRIAL_CANDIDATES, Allocator, belief
from services.generator.search.proposer import ENGINE_PATIENCE_S, Exhausted, Proposer
from services.generator.search.sample import PolicyProposer
from services.generator.search.strategy import allotted
from sparsesmith.errors import Unavailable
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.kernel import Candidate, Evaluation, FromFamily, Outcome, Passed, Rejected, Sampled
from tests.generator.orders import make_prompt, make_task
from tests.generator.reports import make_baselines, make_passed, make_report, make_timing
from tests.generator.test_policy_left_out import idle_sampler
from tests.generator.tiny_policy import make_policy, write_policy


def candidate(source: SourceName, number: int) -> Candidate:
    family = FromFamily(family="csr_scalar", parameters={})
    sampled = Sampled(
        prompt=make_prompt(),
        group="g",
        token_ids=(1,),
        logprobs=(-1.0,),
        temperature=1,
        first_version=0,
        last_version=0,
    )
    origin = family if source == "families" else sampled
    return Candidate(candidate_id=f"{source}-{number}", program=f"{source} {number}", origin=origin)


class Supply:
    """A source that has `total` candidates at once."""

    def __init__(self, name: SourceName, total: int) -> None:
        self.name = name
        self.left = total
        self.made = 0
        self.is_closed = False
        self.is_busy = False
        self.is_ready = False
        self.patience_s = 15.0

    async def propose(self, size: int, standing: Standing) -> tuple[Candidate, ...]:
        size = min(size, self.left, 12)
        if size == 0:
            raise Exhausted
        self.left -= size
        self.made += size
        return tuple(candidate(self.name, self.made - place) for place in range(size))

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


class SlowSupply(Supply):
    """One that needs time for each batch."""

    def __init__(self, name: SourceName, total: int, seconds: float) -> None:
        super().__init__(name, total)
        self._seconds = seconds
        self._making: asyncio.Task[None] | None = None

    async def propose(self, size: int, standing: Standing) -> tuple[Candidate, ...]:
        if self.is_ready:
            self.is_busy = self.is_ready = False
            return await super().propose(size, standing)
        if self.left == 0:
            raise Exhausted
        self.is_busy = True
        self._making = asyncio.create_task(self._make())
        return ()

    async def ready(self) -> None:
        assert self._making is not None
        await asyncio.shield(self._making)

    async def _make(self) -> None:
        await asyncio.sleep(self._seconds)
        self.is_ready = True


class Broken(Supply):
    """One that does not work."""

    async def propose(self, size: int, standing: Standing) -> tuple[Candidate, ...]:
        raise Unavailable("the engine is gone")


Grade = Callable[[Candidate, float], Outcome]
"""Of a candidate, given the best time so far."""


def never_better(each: Candidate, best_us: float) -> Outcome:
    return make_passed(make_timing(20))


def policy_always_better(each: Candidate, best_us: float) -> Outcome:
    return make_passed(make_timing(best_us * 0.97 if isinstance(each.origin, Sampled) else 20))


def searched(proposers: Sequence[Proposer], grade: Grade, budget: int = 200, seed: str = "seed") -> Standing:
    async def run() -> Standing:
        standing = Standing()
        num_left = budget
        async for batch in allotted(proposers, Allocator(seed), standing, 16):
            evaluations = tuple(Evaluation(candidate=each, outcome=grade(each, standing.best_us)) for each in batch)
            standing.add(make_report([]).model_copy(update={"evaluations": evaluations}))
            num_left -= len(batch)
            if num_left <= 0:
                break
        return standing

    return asyncio.run(run())


def test_the_first_programs_are_the_tuners() -> None:
    families, policy = Supply("families", 1000), Supply("policy", 1000)
    searched([families, policy], policy_always_better, budget=FIXED_CANDIDATES)
    assert policy.made == 0


def test_a_source_that_wins_nothing_gets_little_and_none_is_owed_a_share() -> None:
    made: Counter[str] = Counter()
    for seed in range(50):
        families, policy = Supply("families", 1000), Supply("policy", 1000)
        searched([families, policy], never_better, budget=64, seed=str(seed))
        made += Counter(families=families.made, policy=policy.made)
    assert made["policy"] < 0.1 * made["families"]


def test_a_source_that_pays_gets_most_of_the_budget() -> None:
    made: Counter[str] = Counter()
    for seed in range(50):
        families, policy = Supply("families", 1000), Supply("policy", 1000)
        searched([families, policy], policy_always_better, budget=400, seed=str(seed))
        made += Counter(families=families.made, policy=policy.made)
    assert made["policy"] > made["families"]


def test_a_source_without_hope_is_left_before_its_candidates_end() -> None:
    policy = Supply("policy", 10_000)
    standing = searched([Supply("families", 16), policy], never_better, budget=10_000)
    assert 0 < policy.made < 64
    assert standing.of("families").num_proposed == 16


def test_the_policy_has_one_batch_to_show_that_it_pays() -> None:
    policy = Supply("policy", 10_000)
    standing = searched([Supply("families", 16), policy], never_better, budget=10_000)
    assert [turn.num_candidates for turn in standing.of("policy").turns] == [TRIAL_CANDIDATES]


def test_an_engine_that_does_not_serve_is_not_waited_for(tmp_path: Path) -> None:
    sampler = idle_sampler(PolicyFolder(write_policy(tmp_path, make_policy())))
    policy = PolicyProposer(make_task(), sampler, limit=8, in_flight=8)

    async def run() -> float:
        began = time.monotonic()
        async for batch in allotted([Supply("families", 16), policy], Allocator("seed"), (standing := Standing()), 16):
            evaluations = tuple(Evaluation(candidate=each, outcome=never_better(each, 0)) for each in batch)
            standing.add(make_report([]).model_copy(update={"evaluations": evaluations}))
        return time.monotonic() - began

    assert policy.patience_s == 0
    assert asyncio.run(run()) < ENGINE_PATIENCE_S / 2


def test_a_source_that_does_not_work_leaves_all_to_the_others() -> None:
    families = Supply("families", 100)
    searched([families, Broken("policy", 1)], never_better, budget=100)
    assert families.made == 100


def test_the_only_source_that_does_not_work_is_told() -> None:
    with pytest.raises(Unavailable, match="the engine is gone"):
        searched([Broken("policy", 1)], never_better)


def test_a_source_that_is_making_candidates_is_not_waited_for_while_another_has_some() -> None:
    families, policy = Supply("families", 400), SlowSupply("policy", 100, seconds=3600)
    standing = searched([families, policy], never_better, budget=300)
    assert standing.of("families").num_proposed >= 300
    assert families.is_closed
    assert policy.is_closed


def test_what_was_asked_for_is_waited_for_when_nothing_else_is_left() -> None:
    families, policy = Supply("families", 16), SlowSupply("policy", TRIAL_CANDIDATES, seconds=0.1)
    standing = searched([families, policy], never_better)
    assert standing.of("policy").num_proposed == TRIAL_CANDIDATES
    assert standing.of("policy").proposing_s >= 0.1


class NoEngine:
    """A sampler whose engine could not be loaded."""

    is_broken = True


def test_auto_is_families_to_the_letter_where_the_policy_is_missing_or_broken() -> None:
    async def programs(search: str, sampler: PolicySampler | None) -> list[str]:
        sources = Sources(sampler, batch_candidates=16, samples_in_flight=8)
        batches = STRATEGIES[search](make_task(), sources, 60, Standing())  # type: ignore[index]
        return [each.program async for batch in batches for each in batch]

    families = asyncio.run(programs("families", None))
    assert asyncio.run(programs("auto", None)) == families
    assert asyncio.run(programs("auto", NoEngine())) == families  # type: ignore[arg-type]


def test_each_source_is_credited_with_what_it_lowered_the_best_time_by() -> None:
    standing = Standing()
    baselines = make_baselines(make_timing(10), make_timing(12))
    batches: list[tuple[SourceName, list[Outcome]]] = [
        ("families", [make_passed(make_timing(8)), make_passed(make_timing(5)), Rejected(message="")]),
        ("policy", [make_passed(make_timing(6))]),
        ("policy", [make_passed(make_timing(4))]),
    ]
    for source, outcomes in batches:
        evaluations = tuple(
            Evaluation(candidate=candidate(source, place), outcome=each) for place, each in enumerate(outcomes)
        )
        standing.proposed(source, tuple(each.candidate for each in evaluations), 0.5)
        report = make_report([], baselines, seconds=2.0).model_copy(update={"evaluations": evaluations})
        standing.add(report)
    families, policy = standing.sources()
    assert (families.source, families.proposed, families.passed) == ("families", 3, 2)
    assert (families.seconds, families.gain) == pytest.approx((2.5, 0.5))
    assert (policy.source, policy.proposed, policy.passed) == ("policy", 2, 2)
    assert (policy.seconds, policy.gain) == pytest.approx((5.0, 0.2))
    assert standing.best is not None
    assert isinstance(standing.best.outcome, Passed)
    assert standing.best_us == 4


def test_what_the_tuner_gains_at_first_says_nothing_of_its_next_batches() -> None:
    standing = Standing()
    for number in range(2):
        batch = tuple(candidate("families", 8 * number + place) for place in range(8))
        evaluations = tuple(Evaluation(candidate=each, outcome=make_passed(make_timing(4 - number))) for each in batch)
        standing.add(make_report([]).model_copy(update={"evaluations": evaluations}))
    untold = belief("families", Standing())
    told = belief("families", standing)
    assert (told.wins, told.losses, told.gain) == (untold.wins, untold.losses, untold.gain)
