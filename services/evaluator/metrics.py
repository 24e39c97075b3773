"""What Prometheus sees of an evaluator; it travels through Redis (`sparsesmith.transport.metrics_channel`)."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import DeviceDescription

JOB_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class EvaluatorMetrics:
    """Counters of one worker, in a registry of its own."""

    def __init__(self, device: DeviceDescription, confined: Mapping[str, bool], is_ecc_counting: bool = False) -> None:
        """`confined`: parts of the evaluator, and whether the kernel holds each."""
        self.registry = CollectorRegistry()
        labels = {"kind": device.kind, "name": device.name, "architecture": device.architecture}
        Gauge("sparsesmith_evaluator_device", "1: the device", list(labels), registry=self.registry).labels(
            **labels
        ).set(1)
        held = Gauge(
            "sparsesmith_evaluator_confined",
            "1: the kernel holds the part's processes",
            ["part"],
            registry=self.registry,
        )
        for part, is_confined in confined.items():
            held.labels(part).set(is_confined)
        Gauge("sparsesmith_evaluator_ecc", "1: errors of the memory are counted", registry=self.registry).set(
            is_ecc_counting
        )
        self._seconds = Histogram(
            "sparsesmith_evaluator_job_seconds",
            "Seconds of an evaluation job that was answered",
            buckets=JOB_SECONDS,
            registry=self.registry,
        )
        self._outcomes = Counter(
            "sparsesmith_evaluator_candidates",
            "Graded candidates by origin and outcome",
            ["origin", "outcome"],
            registry=self.registry,
        )

        self._stages = Counter(
            "sparsesmith_evaluator_stage_seconds",
            "Seconds of evaluation jobs by stage",
            ["stage"],
            registry=self.registry,
        )

    def graded(self, report: EvaluationReport, seconds: float) -> None:
        """`seconds`: of the whole job."""
        self._seconds.observe(seconds)
        for stage, ms in report.stages_ms.items():
            self._stages.labels(stage).inc(ms / 1e3)
        for evaluation in report.evaluations:
            self._outcomes.labels(evaluation.candidate.origin.kind, evaluation.outcome.outcome).inc()
