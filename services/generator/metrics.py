"""What Prometheus sees of the generator."""

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.generator.jobs.jobs import Jobs
from services.generator.policy.sampling import PolicySampler
from services.generator.policy.watch import PolicyWatch
from sparsesmith_proto.api import JobState
from sparsesmith_proto.evaluation import EvaluationReport

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
