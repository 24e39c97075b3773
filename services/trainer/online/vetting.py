"""What becomes of a published version: waiting for its canary, vouching for it, going back where it failed."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from services.trainer.online.checkpoints import Checkpoint
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.policy import PolicyStanding, Verdict

if TYPE_CHECKING:
    from services.trainer.training import Workshop

log = logging.getLogger(__name__)

POLL_S = 0.2
REMIND_S = 60.0
SMALLEST_STEP = 1 / 16
"""Of the configured learning rates; a policy that still gets worse with these is refused, version after version."""
GROWTH = 2**0.25
"""Of the steps, with each update: four updates that are accepted repay one that was refused."""


def larger(step_scale: float) -> float:
    """The next update's."""
    return min(1.0, step_scale * GROWTH)


def smaller(step_scale: float) -> float:
    """After a version was refused."""
    return max(SMALLEST_STEP, step_scale / 2)


def vetted(
    workshop: "Workshop", state: Checkpoint, must_stop: Callable[[], bool]
) -> tuple[Checkpoint, frozenset[PolicyVersion]] | None:
    """The state to train on, and the versions that were turned down: this state once its version is accepted, the one
    of the version in service where it is not. None: must stop.

    Waits as long as it takes: without a generator there is nothing to learn from, either. Raises Unavailable.
    """
    remind_at = time.monotonic() + REMIND_S
    answered = ""
    while not must_stop():
        standing = workshop.channel.standing()
        if (verdict := standing.verdict(state.version)) is not None:
            _report(workshop, verdict)
        if state.version in standing.turned_down:
            state = _gone_back(workshop, state, standing)
        elif state.version <= max(0, standing.newest_judged):
            return state, standing.turned_down
        else:
            answered = _vouched(workshop, state.version, answered)
            if time.monotonic() > remind_at:
                remind_at += REMIND_S
                log.warning("version %d still waits for a generator's canary", state.version)
            time.sleep(POLL_S)
    return None


def is_turned_down(workshop: "Workshop", version: PolicyVersion) -> bool:
    """Whether this version was refused or rolled back."""
    return version in workshop.channel.standing().turned_down


def _vouched(workshop: "Workshop", version: PolicyVersion, answered: str) -> str:
    """Answers the newest question; the id of the last one that was looked at."""
    question = workshop.channel.question()
    if question is None or question.probe_id == answered:
        return answered
    gap = workshop.vouching.answer(question, version)
    if gap is not None:
        workshop.channel.answer(gap)
    return question.probe_id


def _gone_back(workshop: "Workshop", state: Checkpoint, standing: PolicyStanding) -> Checkpoint:
    """The version in service, with smaller steps, on disk. The versions given so far are not given again."""
    good = standing.serving_version
    found = workshop.checkpoints.of_version(workshop.policy, good)
    if found is not None:
        workshop.learner.load_state_dict(found.learner)
    else:
        good = _restart(workshop, good)
    gone_back = Checkpoint(
        policy=state.policy,
        version=good,
        step=state.step if found is None else found.step,
        metrics={} if found is None else found.metrics,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        used=state.used,
        learner=workshop.learner.state_dict(),
        given=state.newest,
        step_scale=smaller(state.step_scale),
        wins=state.wins,
    )
    workshop.checkpoints.save(gone_back)
    log.warning(
        "version %d was turned down: training goes on from version %d with steps of %.3g times the configured rates",
        state.version, good, gone_back.step_scale,
    )  # fmt: skip
    return gone_back


def _restart(workshop: "Workshop", version: PolicyVersion) -> PolicyVersion:
    """Without its checkpoint a version goes on from its published file, or else from the shipped policy."""
    path = workshop.publisher.weights_of(version)
    if version == 0 or path is None:
        workshop.learner.restart_from_reference()
        return 0
    workshop.learner.restart_from(path)
    return version


def _report(workshop: "Workshop", verdict: Verdict) -> None:
    """Once."""
    last = workshop.verdicts.last()
    if (last.get("version"), last.get("decision")) == (verdict.version, verdict.decision):
        return
    log.info("version %d is %s: %s", verdict.version, verdict.decision.replace("_", " "), verdict.reason)
    scores = {} if verdict.scores is None else verdict.scores.model_dump()
    workshop.verdicts.write(
        {
            "version": verdict.version,
            "decision": verdict.decision,
            "reason": verdict.reason,
            "decided_at": verdict.decided_at,
            **scores,
        }
    )
