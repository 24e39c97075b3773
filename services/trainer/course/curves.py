"""A course in numbers: curves.json, and the same as event files that TensorBoard reads."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from services.trainer.course.events import Scalar, write_events
from services.trainer.course.ledger import Event, Ledger

FIGURES = (
    "mean_reward", "pass_share", "program_kl", "program_kl_reference", "explained_variance_10", "critic_holds",
    "entropy", "mean_staleness", "oldest_used", "kept_share", "records", "seconds",
)  # fmt: skip
"""Of an update."""


@dataclass(frozen=True)
class Point:
    """One update, or one judgement."""

    at_s: float
    """Seconds of learning."""
    step: int
    """Updates until then."""
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Curves:
    """What a course came to."""

    arm: str
    seed: int
    learned_s: float
    updates: Sequence[Point]
    judgements: Sequence[Point]
    """`pass_at_1`, `mean_reward`, `log_speed`, `best_of_n`, `different`, `version`."""
    judged: Sequence[Mapping[str, Any]]
    """Of each judgement, by workload."""
    used: int = 0
    """Graded samples that were learned from."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    oldest_used: float = 0.0
    """Versions."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Accepted, refused."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the seconds of learning: the generator held back by the trainer, evaluators busy, the trainer waiting; each
    GPU busy (`gpu_use`), where there is one."""
    vetted: Sequence[Mapping[str, Any]] = ()
    """Of each version what its canary found (`logprob_gap`, `logprob_gap_program` and others) and, where it was taken
    up, what that cost in seconds (`VersionTaken`)."""
    jobs: Mapping[str, int] = field(default_factory=dict)
    """Posted, graded, lost: ended without an answer."""

    @property
    def used_share(self) -> float:
        """Of graded samples that could be learned from at all: the rest was too old, or of a version that was turned
        down. 0 before the first update."""
        lost = sum(self.skipped.get(reason, 0) for reason in ("stale", "turned_down"))
        return self.used / (self.used + lost) if self.used else 0.0


def curves_of(ledger: Ledger, arm: str, seed: int) -> Curves:
    """All that the ledger tells."""
    updated, judged, learned = ledger.events("updated"), ledger.events("judged"), ledger.events("learned")
    skipped: dict[str, int] = {}
    for event in updated:
        for reason, count in event.get("skipped", {}).items():
            skipped[reason] = skipped.get(reason, 0) + int(count)
    decisions = [str(event["decision"]) for event in ledger.events("vetted")]
    return Curves(
        arm=arm,
        seed=seed,
        learned_s=ledger.seconds,
        updates=[_update(event) for event in updated],
        judgements=[_judgement(event, updated) for event in judged],
        judged=[{"at_s": event["at_s"], "version": event["version"], "groups": event["groups"]} for event in judged],
        used=int(sum(event["records"] for event in updated)),
        skipped=skipped,
        oldest_used=max((float(event["oldest_used"]) for event in updated), default=0.0),
        versions={decision: decisions.count(decision) for decision in sorted(set(decisions))},
        shares=_shares(learned, updated),
        vetted=_vetted(ledger),
        jobs={
            "posted": len(ledger.events("posted")),
            "graded": len(ledger.events("graded")),
            "lost": len(ledger.events("failed")),
        },
    )


def write(folder: Path, curves: Curves) -> None:
    """curves.json and events/ in a course's folder, each in the place of the one before."""
    content = asdict(curves) | {"used_share": curves.used_share}
    partial = folder / "curves.json.part"
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / "curves.json")
    scalars = [
        Scalar(f"{room}/{name}", point.step, point.at_s, value)
        for room, points in (("update", curves.updates), ("judged", curves.judgements))
        for point in points
        for name, value in point.figures.items()
    ]
    write_events(folder / "events" / f"events.out.tfevents.0.{curves.arm}-{curves.seed}", scalars, time.time())


def _update(event: Event) -> Point:
    told = {name: float(event[name]) for name in FIGURES if name in event}
    return Point(float(event["at_s"]), int(event["step"]), told)


def _judgement(event: Event, updated: Sequence[Event]) -> Point:
    steps = [int(each["step"]) for each in updated if each["at_s"] <= event["at_s"]]
    return Point(
        float(event["at_s"]),
        max(steps, default=0),
        {**{name: float(value) for name, value in event["figures"].items()}, "version": float(event["version"])},
    )


def _shares(learned: Sequence[Event], updated: Sequence[Event]) -> dict[str, float]:
    seconds = sum(float(event["seconds"]) for event in learned)
    if not seconds:
        return {}
    held = sum(event["generator_held"] * event["seconds"] for event in learned)
    busy = sum(event["evaluators_busy"] * event["seconds"] for event in learned)
    updating = sum(float(event["seconds"]) for event in updated)
    return {
        "generator_waits": round(held / seconds, 4),
        "evaluators_wait": round(max(0.0, 1 - busy / seconds), 4),
        "trainer_waits": round(max(0.0, 1 - updating / seconds), 4),
        **_stages(learned, seconds),
        **_gpus(learned),
    }


def _vetted(ledger: Ledger) -> list[Mapping[str, Any]]:
    """Ascending versions; the last decision of each."""
    of_event = ("event", "at_s", "decided_at")
    found: dict[int, dict[str, Any]] = {}
    for event in (*ledger.events("vetted"), *ledger.events("taken")):
        told = found.setdefault(int(event["version"]), {})
        told.update({name: value for name, value in event.items() if name not in of_event})
    return [found[version] for version in sorted(found)]


def _gpus(learned: Sequence[Event]) -> dict[str, float]:
    """Of the GPUs that all pieces had, weighted by the pieces' seconds."""
    pieces = [(event["gpus_busy"], float(event["seconds"])) for event in learned if event.get("gpus_busy")]
    seconds = sum(each for _, each in pieces)
    count = min((len(busy) for busy, _ in pieces), default=0)
    return {
        f"gpu_{number}_busy": round(sum(busy[number] * each for busy, each in pieces) / seconds, 4)
        for number in range(count)
    }


def _stages(learned: Sequence[Event], seconds: float) -> dict[str, float]:
    """What the evaluators did meanwhile, as shares of the time."""
    spent: Counter[str] = Counter()
    for event in learned:
        spent.update({stage: share * event["seconds"] for stage, share in event.get("evaluators_stages", {}).items()})
    return {f"evaluators_{stage}": round(each / seconds, 4) for stage, each in spent.items()}
