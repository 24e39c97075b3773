"""What Prometheus sees of the generator."""

import logging
from collections.abc import Iterable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from services.generator.channels import Channels
from services.generator.jobs.jobs import Jobs
from services.generator.policy.sampling import PolicySampler
from services.generator.policy.watch import PolicyWatch
from sparsesmith.errors import Unavailable
from sparsesmith.transport.metrics_channel import MetricsChannel
from sparsesmith_proto.api import JobState
from sparsesmith_proto.evaluation import EvaluationReport

log = logging.getLogger(__name__)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
JOB_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """Counters of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = Counter(
            "sparsesmith_jobs_ended", "Jobs by kind and last state", ["kind", "state"], registry=self.registry
        )
        self._seconds = Histogram(
            "sparsesmith_job_seconds",
            "From the start of a job's run to its end",
            ["kind"],
            buckets=JOB_SECONDS,
            registry=self.registry,
        )
        self._candidates = Counter(
            "sparsesmith_candidates",
            "Graded candidates by origin and outcome",
            ["origin", "outcome"],
            registry=self.registry,
        )
        self._cached = Counter(
            "sparsesmith_cached_answers", "Requests answered from the cache of tuned kernels", registry=self.registry
        )

        self._answers = Counter(
            "sparsesmith_http_requests",
            "Requests by method, route and status; 0: the client had left",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._answer_seconds = Histogram(
            "sparsesmith_http_seconds",
            "From a request's headers to the end of its answer",
            ["route"],
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else "other"
        self._answers.labels(known, route, status).inc()
        self._answer_seconds.labels(route).observe(seconds)

    def job_ended(self, kind: str, state: JobState, seconds: float) -> None:
        self._jobs.labels(kind, state.state).inc()
        self._seconds.labels(kind).observe(seconds)

    def graded(self, report: EvaluationReport) -> None:
        for evaluation in report.evaluations:
            self._candidates.labels(evaluation.candidate.origin.kind, evaluation.outcome.outcome).inc()

    def answered_from_cache(self) -> None:
        self._cached.inc()

    def exposition(self) -> tuple[bytes, str]:
        """The text format and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class Gauges(Collector):
    """Values that are read when Prometheus asks."""

    def __init__(self, jobs: Jobs, sampler: PolicySampler | None, watch: PolicyWatch | None) -> None:
        self._jobs = jobs
        self._sampler = sampler
        self._watch = watch

    def collect(self) -> Iterable[GaugeMetricFamily]:
        engine = None if self._sampler is None else self._sampler.host.engine
        yield GaugeMetricFamily("sparsesmith_jobs_waiting", "Accepted jobs that wait", self._jobs.num_waiting)
        yield GaugeMetricFamily("sparsesmith_jobs_running", "Jobs that run", self._jobs.num_running)
        yield GaugeMetricFamily("sparsesmith_engine_serving", "1 while the engine serves", int(engine is not None))
        if self._watch is not None:
            yield from _policy_gauges(self._watch)


def _policy_gauges(watch: PolicyWatch) -> Iterable[GaugeMetricFamily]:
    yield GaugeMetricFamily("sparsesmith_policy_version", "Of the weights that serve", watch.version)
    under_probe = 0 if watch.under_probe is None else watch.under_probe
    yield GaugeMetricFamily("sparsesmith_policy_under_probe", "Version under probe; 0: none", under_probe)
    decided = GaugeMetricFamily(
        "sparsesmith_policy_verdicts", "Published versions by what was decided, of the newest 64", labels=["decision"]
    )
    for decision in ("accepted", "refused", "rolled_back"):
        decided.add_metric([decision], sum(each.decision == decision for each in watch.standing.verdicts))
    yield decided
    yield GaugeMetricFamily("sparsesmith_policy_postponed", "Canaries that could not be finished", watch.num_postponed)
    scores = GaugeMetricFamily("sparsesmith_policy_probe", "Newest probe of a version", labels=["measure"])
    newest = next((each.scores for each in reversed(watch.standing.verdicts) if each.scores is not None), None)
    for measure, value in ({} if newest is None else newest.model_dump(exclude_none=True)).items():
        scores.add_metric([measure], value)
    yield scores


class SharedGauges(Collector):
    """What the services share through Redis; nothing while it does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def collect(self) -> Iterable[GaugeMetricFamily]:
        try:
            num_evaluators = self._channels.num_evaluators()
            num_busy = self._channels.num_running_evaluations()
            queue_depth = self._channels.queue_depth()
            stored_bytes = self._channels.patterns.num_bytes()
            num_faulty = len(self._channels.quarantine.uuids())
            kinds = _gpu_gauges(self._channels)
        except Unavailable:
            return
        yield GaugeMetricFamily("sparsesmith_evaluators", "Evaluators with a fresh heartbeat", num_evaluators)
        yield GaugeMetricFamily("sparsesmith_evaluators_busy", "Evaluators with a job in hand", num_busy)
        yield GaugeMetricFamily("sparsesmith_evaluation_queue", "Evaluation jobs that wait", queue_depth)
        yield from kinds
        yield GaugeMetricFamily("sparsesmith_stored_matrix_bytes", "Of all matrices in Redis", stored_bytes)
        yield GaugeMetricFamily("sparsesmith_gpus_quarantined", "GPUs with a faulty memory", num_faulty)


def _gpu_gauges(channels: Channels) -> Sequence[GaugeMetricFamily]:
    """Of every kind of GPU that there ever was. Raises Unavailable."""
    living = {kind.name: count for kind, count in channels.gpus.living().items()}
    evaluators = GaugeMetricFamily("sparsesmith_gpu_evaluators", "Evaluators by kind of GPU", labels=["gpu"])
    waiting = GaugeMetricFamily(
        "sparsesmith_gpu_queue", "Evaluation jobs that wait for one kind of GPU", labels=["gpu"]
    )
    for kind in channels.gpus.known().values():
        evaluators.add_metric([kind.name], living.get(kind.name, 0))
        waiting.add_metric([kind.name], channels.queue_depth(kind.queue))
    return evaluators, waiting


class WorkerMetrics(Collector):
    """What evaluators and trainer publish, each sample with the name of its worker."""

    def __init__(self, channel: MetricsChannel) -> None:
        self._channel = channel

    def collect(self) -> Iterable[Metric]:
        try:
            texts = self._channel.latest()
        except Unavailable:
            return []
        families: dict[str, Metric] = {}
        for worker, text in texts.items():
            for family in _families(worker, text):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {**sample.labels, "worker": worker}, sample.value)
        return families.values()


def _families(worker: str, text: str) -> list[Metric]:
    """None of a text that is no exposition, which is logged."""
    try:
        return [family for family in text_string_to_metric_families(text) if family.name.startswith("sparsesmith_")]
    except ValueError as error:
        log.warning("metrics of %s cannot be read: %s", worker, error)
        return []
