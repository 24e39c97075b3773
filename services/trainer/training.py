"""The story of online training: records in, an update, a checkpoint, weights out, and only then the acknowledgement.

Each published version waits for the generator's canary (`vetting`); of one that is refused the weights are forgotten,
and training goes on from the version in service with smaller steps.

Killed at any point, the trainer goes on from its newest checkpoint: records that the checkpoint holds are acknowledged
without being learned from again, all others come again; an announcement that is missing is made.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from services.trainer.online import vetting
from services.trainer.online.batch import SampleBatch, assemble, assemble_examples
from services.trainer.online.checkpoints import Checkpoint, CheckpointFolder, digest_of_records, remembered
from services.trainer.online.intake import Collected, RecordIntake
from services.trainer.online.journal import Journal
from services.trainer.online.learner import Learner, Metrics, Stopped
from services.trainer.online.publishing import Edition, Publisher
from services.trainer.online.vouching import Vouching
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.traces import NO_TRACES, Traces, job_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workshop:
    """What training works with."""

    policy: str
    """Identity of the policy folder that the learner started from."""
    learner: Learner
    intake: RecordIntake
    checkpoints: CheckpointFolder
    publisher: Publisher
    channel: PolicyChannel
    vouching: Vouching
    journal: Journal
    verdicts: Journal
    traces: Traces = NO_TRACES
    imitated_programs: int = 0
    """Of an update."""


def train(workshop: Workshop, must_stop: Callable[[], bool], max_updates: int | None = None) -> int:
    """Learn from records until `must_stop` or `max_updates`; the number of updates made.

    `must_stop` is asked every few seconds; an update in hand is then abandoned, and its records come again. Raises
    Unavailable without Redis, after which it may be called again; OSError where a checkpoint or weights do not fit.
    """
    state = resume(workshop)
    num_updates = 0
    while num_updates != max_updates:
        vetted = vetting.vetted(workshop, state, must_stop)
        if vetted is None:
            break
        state, turned_down = vetted
        collected = workshop.intake.collect(state.version, state.used, must_stop, turned_down)
        if collected is None:
            break
        if workshop.channel.standing().turned_down != turned_down:
            continue  # An operator rolled back meanwhile; what was collected comes again.
        started = time.monotonic()
        try:
            batch = assemble(collected.records, state.version, collected.turned_down)
            metrics = workshop.learner.update(batch, must_stop, state.step_scale, _examples(workshop, state))
        except Stopped:
            log.info("update %d is abandoned; its %d records come again", state.step + 1, len(collected.records))
            break
        state = replace(_after(state, workshop.learner, collected, metrics), wins=workshop.intake.wins.state())
        workshop.checkpoints.save(state)
        if metrics["policy_moved"]:
            workshop.publisher.publish(workshop.learner.networks, _edition(state))
        workshop.intake.acknowledge(collected)
        _trace(workshop.traces, state, collected, time.monotonic() - started)
        _report(workshop.journal, state, collected, time.monotonic() - started)
        num_updates += 1
    return num_updates


def resume(workshop: Workshop) -> Checkpoint:
    """The newest checkpoint, loaded into the learner and announced; the supervised policy where there is none."""
    learner = workshop.learner
    found = workshop.checkpoints.newest(workshop.policy)
    if found is not None:
        learner.load_state_dict(found.learner)
        log.info("goes on from the checkpoint of version %d, %d updates", found.version, found.step)
        workshop.intake.recall(found.wins)
    state = found or Checkpoint(workshop.policy, 0, 0, {}, _now(), (), learner.state_dict())
    _tell_missing(workshop.journal, state)
    if vetting.is_turned_down(workshop, state.newest):
        return state  # Nothing is to be announced: `vetted` goes back where that was not done yet.
    version = workshop.publisher.settle(learner.networks, _edition(state))
    if version != state.version:
        state = replace(state, version=version, given=version)
        workshop.checkpoints.save(state)
    return state


def _trace(traces: Traces, state: Checkpoint, collected: Collected, seconds: float) -> None:
    """A span in the trace of each job that was learned from."""
    for job in sorted({job_of(record_id) for record_id in collected.record_ids}):
        traces.told("learn", job, time.time() - seconds, {"version": state.newest, "update": state.step})


def _examples(workshop: Workshop, state: Checkpoint) -> SampleBatch | None:
    """Programs to imitate in the next update, chosen by its number."""
    chosen = workshop.intake.wins.chosen(workshop.imitated_programs, random.Random(state.step))
    return assemble_examples(chosen) if chosen else None


def _after(state: Checkpoint, learner: Learner, collected: Collected, metrics: Metrics) -> Checkpoint:
    """A new version where the policy moved; else the same one, with a critic that knows more."""
    if not metrics["policy_moved"]:
        return replace(
            state,
            step=state.step + 1,
            metrics=metrics | {"step_scale": state.step_scale},
            created_at=_now(),
            used=remembered(state.used, collected.record_ids),
            learner=learner.state_dict(),
            num_learned=len(collected.record_ids),
        )
    return Checkpoint(
        policy=state.policy,
        version=state.newest + 1,
        step=state.step + 1,
        metrics=metrics | {"step_scale": state.step_scale},
        created_at=_now(),
        used=remembered(state.used, collected.record_ids),
        learner=learner.state_dict(),
        given=state.newest + 1,
        step_scale=vetting.larger(state.step_scale),
        num_learned=len(collected.record_ids),
    )


def _edition(state: Checkpoint) -> Edition:
    return Edition(state.version, state.step, state.metrics, state.created_at)


def _report(journal: Journal, state: Checkpoint, collected: Collected, seconds: float) -> None:
    metrics = state.metrics
    if not metrics["policy_moved"]:
        log.info(
            "the policy stands still: explained variance at the tenth token %.2f",
            metrics.get("explained_variance_10", 0.0),
        )
    log.info(
        "version %d: reward %.3f, passed %.0f %%, KL to reference %.4f, %d records in %.1f s",
        state.version, metrics["mean_reward"], 100 * metrics["pass_share"], metrics["kl_reference"],
        len(collected.records), seconds,
    )  # fmt: skip
    journal.write(_entry(state) | {"seconds": round(seconds, 3), "skipped": dict(collected.skipped)})


def _tell_missing(journal: Journal, state: Checkpoint) -> None:
    """Killed between its checkpoint and its line, an update is told of now; how long it took nobody knows any more."""
    told = journal.last()
    if state.num_learned and (told.get("step"), told.get("created_at")) != (state.step, state.created_at):
        log.info("update %d is in the checkpoint and not in the journal: it is written down now", state.step)
        journal.write(_entry(state) | {"seconds": 0.0, "skipped": {}})


def _entry(state: Checkpoint) -> dict[str, object]:
    """What the journal keeps of an update."""
    return {
        "version": state.version,
        "step": state.step,
        "created_at": state.created_at,
        "records_sha256": digest_of_records(state.learned),
        **{name: float(f"{value:.6g}") for name, value in state.metrics.items()},
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
