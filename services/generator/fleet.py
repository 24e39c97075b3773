"""Who works and what waits, as evaluators and trainers told within the last minute."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from sparsesmith.transport.gpu_kinds import GpuKind
from sparsesmith_proto.api import EvaluatorView, GpuView, TrainerView

DEVICE = "sparsesmith_evaluator_device"
UPDATES = "sparsesmith_trainer_updates_total"


@dataclass(frozen=True)
class Sample:
    """One line of a worker's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


def evaluator_views(texts: Mapping[str, str]) -> tuple[EvaluatorView, ...]:
    """Of the workers whose metrics are an evaluator's, by name."""
    return tuple(view for worker, samples in _told(texts) if (view := _evaluator(worker, samples)) is not None)


def trainer_views(texts: Mapping[str, str]) -> tuple[TrainerView, ...]:
    """Of the workers whose metrics are a trainer's, by name."""
    return tuple(view for worker, samples in _told(texts) if (view := _trainer(worker, samples)) is not None)


def gpu_views(living: Mapping[GpuKind, int], depth: Callable[[str], int]) -> tuple[GpuView, ...]:
    """Kinds that requests may name, each with its evaluators and what waits for it alone."""
    return tuple(
        GpuView(
            name=kind.name,
            kind=kind.kind,
            architecture=kind.architecture,
            evaluators=count,
            evaluations_waiting=depth(kind.queue),
        )
        for kind, count in sorted(living.items(), key=lambda each: each[0].name)
    )


def _told(texts: Mapping[str, str]) -> Iterator[tuple[str, list[Sample]]]:
    """What is no exposition is left out."""
    for worker, text in sorted(texts.items()):
        try:
            families = list(text_string_to_metric_families(text))
        except ValueError:
            continue
        told = (Sample(each.name, each.labels, each.value) for family in families for each in family.samples)
        yield worker, [sample for sample in told if math.isfinite(sample.value)]


def _evaluator(worker: str, samples: Iterable[Sample]) -> EvaluatorView | None:
    told = list(samples)
    device = next((sample.labels for sample in told if sample.name == DEVICE), None)
    if device is None or device.get("kind") not in ("cuda", "interpreter"):
        return None
    outcomes: dict[str, int] = {}
    for sample in told:
        if sample.name == "sparsesmith_evaluator_candidates_total":
            outcome = sample.labels.get("outcome", "unknown")
            outcomes[outcome] = outcomes.get(outcome, 0) + int(sample.value)
    return EvaluatorView(
        worker=worker,
        kind="cuda" if device["kind"] == "cuda" else "interpreter",
        device=device.get("name", ""),
        architecture=device.get("architecture", ""),
        jobs=int(_value(told, "sparsesmith_evaluator_job_seconds_count")),
        job_seconds=_value(told, "sparsesmith_evaluator_job_seconds_sum"),
        outcomes=dict(sorted(outcomes.items())),
        stage_seconds={
            sample.labels["stage"]: sample.value
            for sample in told
            if sample.name == "sparsesmith_evaluator_stage_seconds_total" and "stage" in sample.labels
        },
    )


def _trainer(worker: str, samples: Iterable[Sample]) -> TrainerView | None:
    told = list(samples)
    if all(sample.name != UPDATES for sample in told):
        return None
    figures = {
        sample.labels["figure"]: sample.value
        for sample in told
        if sample.name == "sparsesmith_trainer_figure" and "figure" in sample.labels
    }
    return TrainerView(
        worker=worker,
        updates=int(_value(told, UPDATES)),
        version=int(_value(told, "sparsesmith_trainer_version")),
        figures=figures,
    )


def _value(samples: Iterable[Sample], name: str) -> float:
    """0 where it was not told."""
    return next((sample.value for sample in samples if sample.name == name), 0.0)
