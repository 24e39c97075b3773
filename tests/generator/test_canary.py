"""Versions under probe in a real engine on a tiny policy; evaluators, trainer and users are the test's own."""

import asyncio
import copy
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch

from services.generator.policy.canary import Canary, CanaryOptions, ProbeSamples
from services.generator.policy.comparison import GapLimits
from services.generator.policy.engine import Engine
from services.generator.policy.probe_set import probe_set, probe_set_id
from services.generator.policy.publication import WholeWeights
from services.generator.policy.sampling import PolicySampler, SamplingOptions
from services.generator.policy.sampling_gate import SamplingGate
from services.generator.policy.watch import PolicyWatch
from sparsesmith.errors import Conflict, NotFound
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import Policy
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, Mismatch, ProbeWritten, Sampled, Workload
from sparsesmith_proto.policy import LogprobGap, PolicyAnnouncement, ProbeQuestion, Verdict
from tests.generator.conftest import LivePolicy
from tests.generator.orders import make_task
from tests.generator.reports import make_passed, make_timing, report_for
from tests.generator.tiny_policy import HIDDEN, make_policy, publish, reference_logprobs

CLOSE = 1e-4
NUM_USERS = 8


class Graders:
    """Evaluators that find a share of each version's programs right: all unless a test says otherwise."""

    def __init__(self) -> None:
        self.shares: dict[int, float] = {}
        self.answering = asyncio.Event()
        self.answering.set()
        self.num_graded = 0

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        await self.answering.wait()
        self.num_graded += len(job.candidates)
        report = report_for(job, make_passed(make_timing(5)))
        evaluations = tuple(
            each if self._is_right(each.candidate) else Evaluation(candidate=each.candidate, outcome=_WRONG)
            for each in report.evaluations
        )
        return report.model_copy(update={"evaluations": evaluations})

    def _is_right(self, candidate: Candidate) -> bool:
        assert isinstance(candidate.origin, ProbeWritten)
        chance = hashlib.sha256(candidate.program.encode()).digest()[0] / 256
        return chance < self.shares.get(candidate.origin.version, 1.0)


_WRONG = Mismatch(message="row 0 is wrong")


class Publisher:
    """A trainer: publishes what it is told to and knows the log-probabilities of what it published."""

    def __init__(self, live: LivePolicy, folder: Path, channel: PolicyChannel) -> None:
        self._live = live
        self._folder = folder
        self._channel = channel
        self._policies = {0: live.policy}
        self.answers = True
        self.asked: list[ProbeQuestion] = []

    def publish(self, policy: Policy) -> None:
        self._policies[policy.description.version] = policy
        self._channel.announce(publish(self._folder, policy))

    def ask(self, question: ProbeQuestion) -> None:
        self.asked.append(question)

    def answered(self, probe_id: str) -> LogprobGap | None:
        question = next(each for each in self.asked if each.probe_id == probe_id)
        return self._gap(question) if self.answers else None

    def embedded(self, version: int, pattern: Pattern, workload: Workload, sampled: Sampled) -> torch.Tensor:
        """A prompt as the encoder of a version has it: its weights change with the language model's."""
        embedder = load_embedder(self._live.folder.path)
        if version:
            embedder = embedder.with_weights(self._folder / f"policy-{version}.safetensors")
        return embedder.embed([prompt_inputs(pattern, workload, sampled.prompt)])[0]

    def _gap(self, question: ProbeQuestion) -> LogprobGap:
        patterns = {asked.workload: asked.pattern for asked in probe_set()}
        gaps = []
        for each in question.samples[::8]:
            embeddings = self.embedded(question.version, patterns[each.workload], each.workload, each.sampled)
            expected = reference_logprobs(self._policies[question.version], embeddings, each.sampled.token_ids)
            gaps.append(torch.tensor(each.sampled.logprobs) - expected)
        return LogprobGap(
            probe_id=question.probe_id,
            version=question.version,
            per_token=float(torch.cat(gaps).abs().mean()),
            per_program=float(torch.stack([gap.sum().abs() for gap in gaps]).mean()),
            num_tokens=sum(map(len, gaps)),
        )


def send_to_engine(number: signal.Signals) -> None:
    """A signal to the engine's processes."""
    for child in active_children():
        assert child.pid is not None
        os.kill(child.pid, number)


class FreezingCanary(Canary):
    """Once the probe samples of a version are taken the engine stands still, until the test lets it go on."""

    has_frozen = False

    async def sample(self, engine: Engine, num_samples: int) -> ProbeSamples:
        probe_samples = await super().sample(engine, num_samples)
        send_to_engine(signal.SIGSTOP)
        self.has_frozen = True
        return probe_samples


class Rig:
    """A generator's policy: engine, watch and users."""

    def __init__(
        self,
        live: LivePolicy,
        exchange_dir: Path,
        connection: Redis,
        canary: type[Canary] = Canary,
        **options: Any,
    ) -> None:
        self.live = live
        self.channel = PolicyChannel(connection)
        self.trainer = Publisher(live, exchange_dir, self.channel)
        self.sampler = PolicySampler(live.host, live.writer, SamplingOptions("sm_90", 1.0, 40))
        self.evaluators = Graders()
        self.exchange_dir = exchange_dir
        chosen = {"verdict_s": 60.0, "retry_s": 0.2, "gap": GapLimits(0.005, 0.1), **options}
        self.canary = canary(
            probe_set_id(live.folder.weight_files, 1.0),
            live.writer,
            self.sampler.options,
            self.evaluators,
            PatternStore(connection),
            self.trainer,
            CanaryOptions(**chosen),
        )
        self.watch = PolicyWatch(
            self.channel,
            WholeWeights(exchange_dir, live.folder.weight_files, live.folder.shapes, live.writer),
            self.sampler.gate,
            self.canary,
            poll_s=0.05,
        )

    def verdicts(self) -> dict[int, str]:
        return {verdict.version: verdict.decision for verdict in self.channel.standing().verdicts}

    def verdict(self, version: int) -> Verdict:
        found = self.channel.standing().verdict(version)
        assert found is not None
        return found

    async def judged(self, version: int) -> None:
        while self.channel.standing().verdict(version) is None:
            await asyncio.sleep(0.05)

    async def serving(self, version: int) -> None:
        """Until users are served by this version; it must not be refused meanwhile."""
        while True:
            verdict = self.channel.standing().verdict(version)
            assert verdict is None or verdict.decision == "accepted", verdict
            engine = await self.live.host.serving()
            if (engine.version, self.watch.version, self.watch.under_probe) == (version, version, None):
                return
            await asyncio.sleep(0.05)

    async def user_samples(self, until: "asyncio.Task[Any]") -> list[Sampled]:
        """What all users are given while something goes on, and after it."""

        async def one(number: int) -> list[Sampled]:
            given: list[Sampled] = []
            group = self.sampler.group(make_task(), f"g{number}", 16)
            while not until.done():
                given.append((await group.sample(len(given))).origin)  # type: ignore[arg-type]
            return given

        given = await asyncio.gather(*(one(number) for number in range(NUM_USERS)))
        until.result()
        return [sampled for each in given for sampled in each]

    async def a_few_samples(self) -> list[Sampled]:
        return await self.user_samples(asyncio.create_task(asyncio.sleep(0.1)))

    def run(self, work: Any, limit_s: float = 240) -> Any:
        """With the watch in the background, as a service has it."""

        async def watched() -> Any:
            self.live.prepare = self.watch.prepare
            watching = asyncio.create_task(self.watch.run(self.live.host))
            working = asyncio.ensure_future(work)
            try:
                async with asyncio.timeout(limit_s):
                    await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
                    assert not watching.done(), watching.exception()
                    return await working
            finally:
                self.live.prepare = None
                working.cancel()
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

        return self.live.run(watched())

    def distance(self, policy: Policy, samples: list[Sampled]) -> float:
        """Most nats between what a user's samples say of a token and what a policy says."""
        task, worst = make_task(), 0.0
        for each in samples:
            version = policy.description.version
            embeddings = self.trainer.embedded(version, task.problem.pattern, task.order.workload, each)
            expected = reference_logprobs(policy, embeddings, each.token_ids)
            worst = max(worst, float((torch.tensor(each.logprobs) - expected).abs().max()))
        return worst


def changed_a_little(policy: Policy, version: int) -> Policy:
    """As a small update leaves it."""
    return _with_noise(policy, version, 0.002)


def scaled_by_noise(policy: Policy, version: int) -> Policy:
    """As a trainer that diverged leaves it."""
    return _with_noise(policy, version, 1.0)


def _with_noise(policy: Policy, version: int, size: float) -> Policy:
    torch.manual_seed(version)
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + size * torch.randn_like(parameter))
            parameter.copy_(parameter.to(torch.bfloat16))
    description = make_policy(version=version).description
    return Policy(model, policy.encoder, description)


@pytest.fixture
def rig(live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis) -> Iterator[Rig]:
    made = Rig(live_policy, exchange_dir, redis_connection)
    yield made
    restore(made)


def restore(rig: Rig) -> None:
    """The session's engine back at version 0."""

    async def shipped() -> None:
        engine = await rig.live.host.serving()
        await engine.publish(rig.live.folder.weight_files, 0, rig.live.writer.use_shipped)

    rig.live.run(shipped())


def test_a_version_that_is_as_good_serves_after_its_canary_and_users_get_whole_versions_only(rig: Rig) -> None:
    new = changed_a_little(rig.live.policy, 1)
    rig.trainer.publish(new)

    async def served() -> list[Sampled]:
        return await rig.user_samples(asyncio.create_task(rig.serving(1)))

    samples = rig.run(served())
    verdict = rig.verdict(1)
    assert (verdict.decision, rig.watch.announcement) == ("accepted", verdict.announcement)
    assert verdict.scores is not None
    assert verdict.scores.num_samples == 64
    assert verdict.scores.logprob_gap is not None and verdict.scores.logprob_gap < 1e-3
    taken = rig.watch.taken
    assert taken is not None and taken.first_token_s is not None and taken.version == 1
    assert 0 < taken.paused_s < taken.first_token_s, "the first token comes after the swap"
    assert 0 < taken.waited_s <= taken.canary_s
    assert {each.first_version for each in samples} <= {0, 1}
    assert rig.distance(rig.live.policy, [each for each in samples if each.last_version == 0][:40]) < CLOSE
    assert rig.distance(new, [each for each in samples if each.first_version == 1]) < CLOSE


def test_a_diverging_trainer_never_reaches_a_user(rig: Rig) -> None:
    async def diverge() -> None:
        for version, share in ((1, 0.6), (2, 0.3), (3, 0.0)):
            rig.evaluators.shares[version] = share
            rig.trainer.publish(scaled_by_noise(rig.live.policy, version))
            await rig.judged(version)

    async def served() -> list[Sampled]:
        return await rig.user_samples(asyncio.create_task(diverge()))

    samples = rig.run(served())
    assert rig.watch.taken is None
    assert rig.verdicts() == {1: "refused", 2: "refused", 3: "refused"}
    assert "below that of the shipped version" in rig.verdict(3).reason
    assert len(samples) > NUM_USERS  # each was answered again and again while versions were judged
    assert {(each.first_version, each.last_version) for each in samples} == {(0, 0)}
    assert rig.distance(rig.live.policy, samples) < CLOSE
    assert (rig.watch.version, rig.watch.announcement) == (0, None)


def test_each_version_is_held_against_the_one_in_service_too(rig: Rig) -> None:
    rig.trainer.publish(changed_a_little(rig.live.policy, 1))
    rig.run(rig.serving(1))
    rig.evaluators.shares[2] = 0.5
    rig.trainer.publish(scaled_by_noise(rig.live.policy, 2))
    rig.run(rig.judged(2))
    assert rig.verdicts() == {1: "accepted", 2: "refused"}
    assert "below that of version 1, which serves" in rig.verdict(2).reason
    rig.run(rig.serving(1))


def test_an_engine_that_computes_another_policy_than_the_trainer_does_not_serve(rig: Rig) -> None:
    rig.trainer.publish(changed_a_little(rig.live.policy, 1))
    rig.trainer._policies[1] = _with_noise(rig.live.policy, 9, 0.05)
    rig.run(rig.judged(1))
    assert rig.verdict(1).decision == "refused"
    assert "engine and trainer do not compute the same policy" in rig.verdict(1).reason


def test_equal_texts_are_graded_once(rig: Rig) -> None:
    rig.trainer.publish(changed_a_little(rig.live.policy, 1))
    rig.run(rig.judged(1))
    texts = 64 * 5
    assert 0 < rig.evaluators.num_graded <= texts


def test_without_an_answer_of_the_evaluators_a_version_waits_and_the_last_good_one_goes_on(
    live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis
) -> None:
    rig = Rig(live_policy, exchange_dir, redis_connection, verdict_s=1.0)
    rig.trainer.publish(changed_a_little(live_policy.policy, 1))
    rig.evaluators.answering.clear()

    async def twice_postponed() -> list[Sampled]:
        while rig.watch.num_postponed < 2:
            await asyncio.sleep(0.05)
        return await rig.a_few_samples()

    samples = rig.run(twice_postponed())
    assert rig.verdicts() == {}
    assert {each.last_version for each in samples} == {0}
    rig.evaluators.answering.set()
    rig.run(rig.serving(1))
    restore(rig)


def test_without_an_answer_of_the_trainer_a_version_waits(
    live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis
) -> None:
    rig = Rig(live_policy, exchange_dir, redis_connection, verdict_s=1.0)
    rig.trainer.publish(changed_a_little(live_policy.policy, 1))
    rig.trainer.answers = False

    async def postponed() -> None:
        while rig.watch.num_postponed < 1:
            await asyncio.sleep(0.05)

    rig.run(postponed())
    assert (rig.verdicts(), rig.watch.version) == ({}, 0)


def test_users_wait_no_longer_for_a_probe_than_they_are_told(
    live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis
) -> None:
    rig = Rig(live_policy, exchange_dir, redis_connection, hold_s=0.3, samples=1024)
    rig.trainer.publish(changed_a_little(live_policy.policy, 1))

    async def postponed() -> list[Sampled]:
        while rig.watch.num_postponed < 1:
            await asyncio.sleep(0.02)
        return await rig.a_few_samples()

    samples = rig.run(postponed())
    assert samples and rig.distance(live_policy.policy, samples) < CLOSE
    assert rig.verdicts() == {}


def test_users_go_on_waiting_where_the_version_under_probe_is_still_in_the_engine_when_their_time_is_up(
    live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis
) -> None:
    rig = Rig(live_policy, exchange_dir, redis_connection, FreezingCanary, hold_s=8.0)
    rig.trainer.publish(changed_a_little(live_policy.policy, 1))

    async def time_is_up() -> list[Sampled]:
        while not rig.canary.has_frozen:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        users = asyncio.create_task(rig.a_few_samples())
        await asyncio.sleep(rig.canary.options.hold_s)
        held = not rig.sampler.gate.is_open
        send_to_engine(signal.SIGCONT)
        assert held, "users were let in to an engine that holds a version under probe"
        while rig.watch.num_postponed < 1:
            await asyncio.sleep(0.02)
        return await users

    samples = rig.run(time_is_up())
    assert {(each.first_version, each.last_version) for each in samples} == {(0, 0)}
    assert rig.distance(live_policy.policy, samples) < CLOSE
    assert rig.verdicts() == {}


def test_a_prompt_that_was_written_before_a_swap_is_not_answered_by_the_version_after_it(rig: Rig) -> None:
    new = changed_a_little(rig.live.policy, 1)
    path = rig.exchange_dir / publish(rig.exchange_dir, new).weights
    group = rig.sampler.group(make_task(), "g0", 16)

    async def across_a_swap() -> Sampled:
        engine = await rig.live.host.serving()
        send_to_engine(signal.SIGSTOP)
        swap_encoder = rig.live.writer.prepared(path, 1)
        swapping = asyncio.create_task(engine.publish((path,), 1, swap_encoder))
        await asyncio.sleep(0.1)  # The engine will find that it is to pause, and then that there is a sample to take.
        sampling = asyncio.create_task(group.sample(0))
        await asyncio.sleep(0.5)
        send_to_engine(signal.SIGCONT)
        await swapping
        return (await sampling).origin  # type: ignore[return-value]

    sampled = rig.live.run(across_a_swap())
    assert (sampled.first_version, sampled.last_version) == (1, 1)
    assert rig.distance(new, [sampled]) < CLOSE


def test_an_operator_goes_back_to_an_accepted_version_or_to_the_shipped_one(rig: Rig) -> None:
    for version in (1, 2):
        rig.trainer.publish(changed_a_little(rig.live.policy, version))
        rig.run(rig.serving(version))
    rig.live.run(rig.watch.roll_back(None))
    rig.run(rig.serving(1))
    assert rig.verdicts() == {1: "accepted", 2: "rolled_back"}
    with pytest.raises(NotFound, match="version 2 is not an accepted one"):
        rig.live.run(rig.watch.roll_back(2))
    with pytest.raises(Conflict, match="version 1 serves already"):
        rig.live.run(rig.watch.roll_back(1))
    rig.live.run(rig.watch.roll_back(0))
    rig.run(rig.serving(0))
    samples = rig.run(rig.a_few_samples())
    assert rig.distance(rig.live.policy, samples) < CLOSE


def corrupt_digest(folder: Path, announcement: PolicyAnnouncement) -> PolicyAnnouncement:
    return announcement.model_copy(update={"sha256": "0" * 64})


def cut_short(folder: Path, announcement: PolicyAnnouncement) -> PolicyAnnouncement:
    path = folder / announcement.weights
    path.write_bytes(path.read_bytes()[:-1000])
    return announcement


def name_another_folder(folder: Path, announcement: PolicyAnnouncement) -> PolicyAnnouncement:
    return announcement.model_copy(update={"weights": f"../{folder.name}/{announcement.weights}"})


def lose(folder: Path, announcement: PolicyAnnouncement) -> PolicyAnnouncement:
    (folder / announcement.weights).unlink()
    return announcement


@pytest.mark.parametrize("spoil", [corrupt_digest, cut_short, name_another_folder, lose])
def test_a_bad_file_is_refused_and_the_old_weights_go_on(
    rig: Rig, spoil: Callable[[Path, PolicyAnnouncement], PolicyAnnouncement]
) -> None:
    policy = make_policy(seed=2, version=5)
    refuse(rig, spoil(rig.exchange_dir, publish(rig.exchange_dir, policy)))


def test_weights_that_are_not_finite_are_refused(rig: Rig) -> None:
    broken = make_policy(seed=2, version=5)
    with torch.no_grad():
        broken.model.model.layers[0].mlp.up_proj.weight[0, 0] = torch.nan
    refuse(rig, publish(rig.exchange_dir, broken))


def test_weights_of_another_shape_are_refused(rig: Rig) -> None:
    other = make_policy(seed=2, version=5)
    other.model.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(8, HIDDEN))
    refuse(rig, publish(rig.exchange_dir, other))


def refuse(rig: Rig, announcement: PolicyAnnouncement) -> None:
    rig.channel.announce(announcement)
    rig.run(rig.judged(5))
    assert rig.verdict(5).decision == "refused"
    assert (rig.watch.announcement, rig.trainer.asked) == (None, [])
    samples = rig.run(rig.a_few_samples())
    assert rig.distance(rig.live.policy, samples) < CLOSE


def test_a_version_whose_file_is_gone_is_not_gone_back_to(rig: Rig) -> None:
    for version in (1, 2):
        rig.trainer.publish(changed_a_little(rig.live.policy, version))
        rig.run(rig.serving(version))
    (rig.exchange_dir / "policy-1.safetensors").unlink()
    with pytest.raises(NotFound, match="version 1 cannot serve"):
        rig.live.run(rig.watch.roll_back(1))
    assert rig.channel.standing().serving_version == 2


def test_a_restarted_generator_serves_the_accepted_version_without_another_canary(
    rig: Rig, redis_connection: Redis
) -> None:
    rig.trainer.publish(changed_a_little(rig.live.policy, 1))
    rig.run(rig.serving(1))
    restore(rig)
    again = Rig(rig.live, rig.exchange_dir, redis_connection)

    async def prepared() -> None:
        await again.watch.prepare(await again.live.host.serving())

    again.live.run(prepared())
    again.run(again.serving(1))
    assert again.trainer.asked == []


def test_an_accepted_version_whose_file_is_lost_gives_way_to_the_shipped_one(rig: Rig, redis_connection: Redis) -> None:
    rig.trainer.publish(changed_a_little(rig.live.policy, 1))
    rig.run(rig.serving(1))
    (rig.exchange_dir / "policy-1.safetensors").unlink()
    restore(rig)
    again = Rig(rig.live, rig.exchange_dir, redis_connection)

    async def prepared() -> None:
        await again.watch.prepare(await again.live.host.serving())

    again.live.run(prepared())
    again.run(again.serving(0))


@pytest.mark.timeout(900)
def test_an_engine_that_is_killed_under_a_probe_is_replaced_at_the_last_good_version(
    live_policy: LivePolicy, exchange_dir: Path, redis_connection: Redis
) -> None:
    """The session's engine is another one afterwards. Without a pause, the dead one would be tried again."""
    rig = Rig(live_policy, exchange_dir, redis_connection, retry_s=0.0)
    new = changed_a_little(rig.live.policy, 1)
    rig.trainer.publish(new)

    async def kill_under_probe() -> list[Sampled]:
        engine = await rig.live.host.serving()
        while engine.version != 1:
            await asyncio.sleep(0.001)
        assert not rig.sampler.gate.is_open
        send_to_engine(signal.SIGKILL)
        return await rig.user_samples(asyncio.create_task(rig.serving(1)))

    samples = rig.run(kill_under_probe(), limit_s=800)
    assert rig.verdicts() == {1: "accepted"}, "a death may be anybody's fault: it was probed again"
    before = [each for each in samples if each.last_version == 0]
    after = [each for each in samples if each.first_version == 1]
    assert before and rig.distance(rig.live.policy, [*before[:20], *before[-20:]]) < CLOSE
    assert rig.distance(new, after[:40]) < CLOSE
    restore(rig)


def test_a_gate_lets_nobody_in_while_it_is_closed_and_closes_when_all_are_out() -> None:
    async def story() -> list[str]:
        gate, told = SamplingGate(), list[str]()
        first_may_end = asyncio.Event()

        async def user(name: str, until: asyncio.Event) -> None:
            async with gate.passing():
                told.append(f"{name} in")
                await until.wait()
                told.append(f"{name} out")

        async def probe() -> None:
            async with gate.closed():
                told.append("closed")
                await asyncio.sleep(0.02)
                told.append("open again")

        done = asyncio.Event()
        done.set()
        first = asyncio.create_task(user("first", first_may_end))
        await asyncio.sleep(0)
        probing = asyncio.create_task(probe())
        await asyncio.sleep(0)
        second = asyncio.create_task(user("second", done))
        await asyncio.sleep(0.01)
        first_may_end.set()
        await asyncio.gather(first, probing, second)
        return told

    expected = ["first in", "first out", "closed", "open again", "second in", "second out"]
    assert asyncio.run(story()) == expected
