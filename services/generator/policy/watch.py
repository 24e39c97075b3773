"""Follows the policy channel: a version serves once its canary has found it no worse, and no sooner.

What serves is the standing's to say. A newer announcement is taken up like this: users' samples in the engine come to
their end and new ones wait; the announced weights go into engine and encoder, the probe samples are taken, the weights
in service come back, and users go on. Grading and the trainer's check follow while users are served. An accepted
version is then swapped in between two tokens; of a refused one no user has seen a token. Killed at any point,
everything starts again from the standing: the version in service serves, the newest one that was not decided of is
probed afresh.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from services.generator.policy.canary import Canary, NoVerdict, ProbeSamples
from services.generator.policy.comparison import complaint
from services.generator.policy.engine import Engine, EngineFailed
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.publication import Publication
from services.generator.policy.sampling_gate import SamplingGate
from services.generator.policy.weights import RefusedWeights
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.policy import PolicyAnnouncement, PolicyStanding, Probe, ProbeScores, Verdict, VersionTaken

log = logging.getLogger(__name__)

SHIPPED_ROUNDS = 4
"""Times the probe's samples that the shipped version is measured by: every version to come is held against it."""
LONGEST_RETRY_S = 900.0
MOST_DEATHS = 2
OPERATOR = "rolled back by an operator"


class PolicyNews(Protocol):
    """The generator's end of `sparsesmith.transport.policy_channel.PolicyChannel`; blocking, may raise Unavailable."""

    def latest(self) -> PolicyAnnouncement | None: ...

    def standing(self) -> PolicyStanding: ...

    def judge(self, verdict: Verdict, *probes: Probe) -> bool: ...

    def keep_probe(self, probe: Probe) -> None: ...

    def roll_back(self, to: PolicyVersion, reason: str, now: str) -> PolicyStanding: ...


@dataclass(frozen=True)
class _Acceptance:
    """Of the version in service, which this engine took up."""

    engine: Engine
    version: PolicyVersion
    at: float
    """By the monotonic clock."""
    canary_s: float
    waited_s: float
    paused_s: float


class PolicyWatch:
    """Keeps every engine that the host loads at the version in service, and vets the newest announced one."""

    def __init__(
        self,
        channel: PolicyNews,
        publication: Publication,
        gate: SamplingGate,
        canary: Canary,
        poll_s: float,
    ) -> None:
        self._channel = channel
        self._publication = publication
        self._gate = gate
        self._canary = canary
        self._poll_s = poll_s
        self._swapping = asyncio.Lock()
        self._lost: set[str] = set()
        """Digests of weights in service that cannot be loaded any more."""
        self._deaths: Counter[PolicyVersion] = Counter()
        """Engines that died under a version's probe."""
        self._retry_at = 0.0
        self._num_tries = 0
        self._waited_s = 0.0
        """That users' samples waited for the canary under way."""
        self._acceptance: _Acceptance | None = None
        self.standing = PolicyStanding()
        """As last read."""
        self.announcement: PolicyAnnouncement | None = None
        """Behind the weights that serve; None for the policy as shipped."""
        self.under_probe: PolicyVersion | None = None
        self.num_postponed = 0

    @property
    def version(self) -> PolicyVersion:
        """Of the weights that users are served from."""
        return 0 if self.announcement is None else self.announcement.version

    @property
    def taken(self) -> VersionTaken | None:
        """What it cost to take the version in service up; None where it serves since its engine was started."""
        found = self._acceptance
        if found is None or found.version != self.version or found.engine.version != self.version:
            return None
        first_at = found.engine.first_token_at
        return VersionTaken(
            version=found.version,
            canary_s=round(found.canary_s, 4),
            waited_s=round(found.waited_s, 4),
            paused_s=round(found.paused_s, 4),
            first_token_s=None if first_at is None else round(max(0.0, first_at - found.at), 4),
        )

    async def run(self, host: EngineHost) -> None:
        """Until cancelled. What the standing says is followed while a canary is under way."""
        async with asyncio.TaskGroup() as canaries:
            vetting: asyncio.Task[None] | None = None
            while True:
                await asyncio.sleep(self._poll_s)
                if (engine := host.engine) is None:
                    continue
                await self.follow(engine)
                if vetting is None or vetting.done():
                    vetting = canaries.create_task(self.vet_newest(engine))

    async def prepare(self, engine: Engine) -> None:
        """Bring a fresh engine, which has the shipped weights, to the version in service."""
        self.announcement = self._acceptance = None
        self._publication.use_shipped()
        await self.follow(engine)

    async def follow(self, engine: Engine) -> None:
        """Load what the standing says, unless the engine has it."""
        if await self._read():
            async with self._swapping:
                await self._follow(engine)

    async def vet_newest(self, engine: Engine) -> None:
        """Decide of the newest announcement, where that was not done and no pause is on.

        An engine that died meanwhile is not asked: one death is counted once.
        """
        try:
            newest = await asyncio.to_thread(self._channel.latest)
            if newest is None or newest.version <= self.standing.newest_judged:
                return
            if self._is_time() and engine.is_alive:
                await self._vet(engine, newest)
        except Unavailable as error:
            log.warning("the policy channel does not answer: %s", error)

    async def roll_back(self, version: PolicyVersion | None) -> PolicyStanding:
        """An operator's wish: an accepted version, or the accepted one before the version in service, serves.

        Raises NotFound where there is none or its file is gone, Conflict where it serves already, Unavailable.
        """
        standing = await asyncio.to_thread(self._channel.standing)
        target = _before(standing) if version is None else version
        if (verdict := standing.verdict(target)) is not None:
            try:
                await self._check(verdict.announcement)
            except RefusedWeights as error:
                raise NotFound(f"version {target} cannot serve: {error}", field="version", value=target) from error
        self.standing = await asyncio.to_thread(self._channel.roll_back, target, OPERATOR, _now())
        log.warning("rolled back by an operator: version %d is to serve", target)
        return self.standing

    async def _read(self) -> bool:
        try:
            self.standing = await asyncio.to_thread(self._channel.standing)
        except Unavailable as error:
            log.warning("the policy channel does not answer: %s", error)
            return False
        return True

    async def _follow(self, engine: Engine) -> None:
        """Weights in service that are lost or damaged are passed over for the shipped ones, loudly and once."""
        serving = self.standing.serving
        if serving is not None and serving.sha256 in self._lost:
            serving = None
        if (0 if serving is None else serving.version) != engine.version:
            await self._serve(engine, serving)
        else:
            self.announcement = serving

    async def _serve(self, engine: Engine, serving: PolicyAnnouncement | None) -> None:
        """This version, or the shipped one where its file is not what it was, or a dead engine."""
        try:
            await self._load(engine, serving)
        except RefusedWeights as error:
            assert serving is not None, "the shipped weights are not checked"
            log.error("version %d was accepted and cannot be loaded, version 0 serves: %s", serving.version, error)
            self._lost.add(serving.sha256)
            await self._serve(engine, None)
            return
        except EngineFailed as error:
            log.error("%s", error)
            return
        self.announcement = serving
        log.info("policy version %d serves", engine.version)

    async def _vet(self, engine: Engine, announcement: PolicyAnnouncement) -> None:
        """Decide of a version, or postpone it."""
        version, started = announcement.version, time.monotonic()
        self.under_probe, self._waited_s = version, 0.0
        log.info("policy version %d is under probe; version %d serves", version, self.version)
        try:
            await self._check(announcement)
            probe, references = await self._probed(engine, announcement)
        except RefusedWeights as error:
            await self._decide(engine, announcement, str(error))
        except EngineFailed as error:
            await self._count_death(engine, announcement, error)
        except NoVerdict as error:
            self._postpone(version, error)
        else:
            accepted_at = time.monotonic()
            log.info("the canary of version %d took %.2f s", version, accepted_at - started)
            await self._decide(engine, announcement, complaint(probe, references, self._canary.options.gap), probe)
            if engine.is_alive and self.version == engine.version == version:
                self._acceptance = _Acceptance(
                    engine, version, accepted_at, accepted_at - started, self._waited_s, engine.paused_s
                )
        finally:
            self.under_probe = None

    async def _probed(self, engine: Engine, announcement: PolicyAnnouncement) -> tuple[Probe, list[Probe]]:
        """The version's probe, and those of the shipped version and the one in service."""
        options, serving = self._canary.options, self.announcement
        probe = await self._canary.examine(await self._probe_samples(engine, announcement, options.samples))
        shipped = await self._reference(engine, None, SHIPPED_ROUNDS * options.samples, probe.device)
        if serving is None:
            return probe, [shipped]
        return probe, [shipped, await self._reference(engine, serving, options.samples, probe.device)]

    async def _reference(self, engine: Engine, of: PolicyAnnouncement | None, num_samples: int, device: str) -> Probe:
        """A probe that the standing remembers, or a new one where it was of another probe set or device."""
        version = 0 if of is None else of.version
        known = self.standing.probe(version)
        if known is not None and (known.probe_set, known.device) == (self._canary.probe_set_id, device):
            return known
        log.info("policy version %d is measured for comparison", version)
        # The trainer knows the shipped version and the one that it published last, no other.
        probe_samples = await self._probe_samples(engine, of, num_samples)
        gpu = device.partition(" ")[2]  # What is compared is of one kind.
        probe = await self._canary.examine(probe_samples, with_gap=version == 0, gpu=gpu)
        await asyncio.to_thread(self._channel.keep_probe, probe)
        return probe

    async def _probe_samples(self, engine: Engine, of: PolicyAnnouncement | None, num_samples: int) -> ProbeSamples:
        """Probe samples of any version. Unless it serves, users wait while the engine holds it, `hold_s` at most."""
        if (0 if of is None else of.version) == engine.version:
            return await self._canary.sample(engine, num_samples)
        started, hold_s = time.monotonic(), self._canary.options.hold_s
        try:
            async with asyncio.timeout(hold_s), self._swapping, self._gate.closed():
                drained_s = time.monotonic() - started
                probe_samples = await self._held(engine, of, num_samples)
        except TimeoutError:
            raise NoVerdict(f"the engine did not write the probe samples within {hold_s:g} s") from None
        held_s = time.monotonic() - started
        self._waited_s += held_s
        log.info("users' samples waited %.2f s, %.2f s of it for those in the engine", held_s, drained_s)
        return probe_samples

    async def _held(self, engine: Engine, of: PolicyAnnouncement | None, num_samples: int) -> ProbeSamples:
        """The weights in service are back in the engine when this ends, however it ends, or the engine is dead."""
        try:
            await self._load(engine, of)
            log.info("the engine holds version %d for its probe; users' samples wait", engine.version)
            return await self._canary.sample(engine, num_samples)
        finally:
            if engine.is_alive:
                await _to_its_end(self._serve(engine, self.announcement))

    async def _load(self, engine: Engine, of: PolicyAnnouncement | None) -> None:
        """Language model and encoder together. Raises RefusedWeights, EngineFailed."""
        if of is not None:
            await self._check(of)
        # A swap that is begun is finished: between pause and resume the engine stands still.
        await asyncio.shield(asyncio.ensure_future(self._publication.load(engine, of)))

    async def _check(self, announcement: PolicyAnnouncement) -> None:
        await asyncio.to_thread(self._publication.check, announcement)

    async def _decide(
        self, engine: Engine, announcement: PolicyAnnouncement, complaint: str | None, probe: Probe | None = None
    ) -> None:
        """Told to everyone first, then done: killed in between, the next engine does it."""
        verdict = Verdict(
            announcement=announcement,
            decision="accepted" if complaint is None else "refused",
            reason=complaint or "no worse than the shipped version and the one in service",
            decided_at=_now(),
            scores=None if probe is None else _scores(probe),
        )
        probes = () if probe is None else (probe,)
        if not await asyncio.to_thread(self._channel.judge, verdict, *probes):
            log.warning("policy version %d was decided of by another generator", announcement.version)
        self._num_tries, self._retry_at = 0, 0.0
        if complaint is not None:
            log.error("policy version %d is refused, version %d goes on: %s", verdict.version, self.version, complaint)
        if engine.is_alive:
            await self.follow(engine)

    async def _count_death(self, engine: Engine, announcement: PolicyAnnouncement, error: EngineFailed) -> None:
        """Once may be anybody's fault."""
        self._deaths[announcement.version] += 1
        if self._deaths[announcement.version] < MOST_DEATHS:
            self._postpone(announcement.version, NoVerdict(str(error)))
        else:
            await self._decide(engine, announcement, f"the engine died under it {MOST_DEATHS} times: {error}")

    def _postpone(self, version: PolicyVersion, error: NoVerdict) -> None:
        pause_s = min(self._canary.options.retry_s * 2**self._num_tries, LONGEST_RETRY_S)
        self._num_tries += 1
        self.num_postponed += 1
        self._retry_at = time.monotonic() + pause_s
        log.warning("policy version %d does not serve: %s; it is probed again in %g s", version, error, pause_s)

    def _is_time(self) -> bool:
        return time.monotonic() >= self._retry_at


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it though the time for it is up: what comes after relies on it."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    finally:
        await asyncio.wait([working])


def _before(standing: PolicyStanding) -> PolicyVersion:
    accepted = [each.version for each in standing.verdicts if each.decision == "accepted"]
    return max((version for version in accepted if version < standing.serving_version), default=0)


def _scores(probe: Probe) -> ProbeScores:
    gap = probe.gap
    return ProbeScores(
        num_samples=probe.num_samples,
        compile_share=probe.compile_share,
        pass_share=probe.pass_share,
        mean_reward=probe.mean_reward,
        logprob_gap=None if gap is None else gap.per_token,
        logprob_gap_program=None if gap is None else gap.per_program,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
