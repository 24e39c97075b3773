"""One trace of a job across the services, from the POST to what the trainer learned."""

from typing import Any, cast

import pytest

from services.evaluator.jobs import Grader, GradingService
from sparsesmith.errors import InvalidOption
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.connection import connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.traces import NO_TRACES, job_of, span, span_id_of, trace_id_of, traces_to
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.evaluator.test_jobs import sampled
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import report_for

pytest.importorskip("opentelemetry.sdk", reason="the extra `tracing` is not installed")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sparsesmith.transport.sent_traces import SentTraces

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
REQUEST = {"matrix": MATRIX, "budget": {"candidates": 2, "seconds": 20}}


class PassingGrader:
    """Every candidate passes, as if the policy had written it."""

    def grade(self, job: EvaluationJob, patterns: PatternStore) -> EvaluationReport:
        report = report_for(job)
        evaluations = tuple(
            each.model_copy(update={"candidate": each.candidate.model_copy(update={"origin": sampled()})})
            for each in report.evaluations
        )
        return report.model_copy(update={"evaluations": evaluations})


class GradedHere(Evaluators):
    """Evaluators whose jobs go through the evaluator's own service, in this process."""

    def __init__(self, redis_url: str, traces: SentTraces) -> None:
        super().__init__()
        connection = connect(redis_url)
        channels = PatternStore(connection), RewardStream(connection), Accounts(connection)
        self._service = GradingService(cast(Grader, PassingGrader()), *channels, traces=traces)

    def submit(self, job: Any) -> None:
        super().submit(job)
        self._service.grade(job)


def finished(exporter: InMemorySpanExporter, *services: SentTraces) -> tuple[ReadableSpan, ...]:
    for each in services:
        each.flush()
    spans: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    return spans


def test_a_job_is_one_trace_from_the_post_to_the_records_that_were_learned_from(redis_url: str) -> None:
    exporter = InMemorySpanExporter()
    generator, evaluator, trainer = (SentTraces(name, exporter) for name in ("generator", "evaluator", "trainer"))
    with live_service(redis_url, GradedHere(redis_url, evaluator), traces=generator, cache_ttl_s=0) as http:
        answer = http.post("/v1/kernels", json=REQUEST, headers={"Prefer": "wait=20"}).json()
    assert answer["status"]["state"] == "finished"
    records = [each.record for each in RewardStream(connect(redis_url)).read("test", 10, 100)]
    for record in records:
        trainer.told("learn", record.record_id, 0.0, {"version": 1})

    spans = finished(exporter, generator, evaluator, trainer)
    names = [each.name for each in spans]
    assert set(names) == {"accept", "job", "grade", "reward", "learn"}
    assert names.count("reward") == names.count("learn") == len(records) > 0
    assert {each.resource.attributes["service.name"] for each in spans} == {"generator", "evaluator", "trainer"}
    (root,) = (each for each in spans if each.name == "job")
    assert root.parent is None
    assert root.attributes is not None and root.attributes["state"] == "finished"
    for each in spans:
        assert each.context.trace_id == root.context.trace_id == trace_id_of(answer["job_id"])
        assert each is root or (each.parent is not None and each.parent.span_id == root.context.span_id)


def test_what_is_made_for_a_job_belongs_to_its_trace_and_two_jobs_have_two() -> None:
    names = ("abc", "abc.0f0f-1", "abc.0f0f-1:candidate-0")
    assert {job_of(name) for name in names} == {"abc"}
    assert len({trace_id_of(name) for name in names}) == len({span_id_of(name) for name in names}) == 1
    assert trace_id_of("abd") != trace_id_of("abc")


def test_a_span_of_what_failed_names_the_error() -> None:
    exporter = InMemorySpanExporter()
    traces = SentTraces("test", exporter)
    with pytest.raises(ZeroDivisionError), span(traces, "grade", "abc"):
        raise ZeroDivisionError
    (found,) = finished(exporter, traces)
    assert found.attributes is not None and found.attributes["error.type"] == "ZeroDivisionError"


def test_nothing_is_sent_unless_an_address_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces_to("", "test") is NO_TRACES
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match=r"pip install 'sparsesmith\[tracing\]'"):
        traces_to("http://127.0.0.1:4318/v1/traces", "test")
