"""Traces that OpenTelemetry sends; the one module that imports it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from sparsesmith.transport.traces import Attribute, span_id_of, trace_id_of

NANOSECONDS = 1_000_000_000


class JobIds(RandomIdGenerator):
    """Ids of spans: by chance, but for a job's own span."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def of(self, job: str) -> Iterator[None]:
        """The span that this thread starts meanwhile is the job's own."""
        self._of_thread.job = job
        try:
            yield
        finally:
            self._of_thread.job = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self._job is None else trace_id_of(self._job)

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self._job is None else span_id_of(self._job)

    @property
    def _job(self) -> str | None:
        found: str | None = getattr(self._of_thread, "job", None)
        return found


class SentTraces:
    """Sends spans from a thread of its own; while nobody takes them they are dropped."""

    def __init__(self, service: str, exporter: SpanExporter) -> None:
        self._ids = JobIds()
        self._provider = TracerProvider(resource=Resource({SERVICE_NAME: service}), id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("sparsesmith")

    def told(self, name: str, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """See `Traces`."""
        parent = SpanContext(trace_id_of(job), span_id_of(job), True, TraceFlags(TraceFlags.SAMPLED))
        context = set_span_in_context(NonRecordingSpan(parent), Context())
        self._end(name, job, context, began_s, attributes)

    def job_ended(self, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """See `Traces`."""
        with self._ids.of(job):
            self._end("job", job, Context(), began_s, attributes)

    def flush(self) -> None:
        """Waits until what was told is sent."""
        self._provider.force_flush()

    def _end(self, name: str, job: str, context: Context, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        started = int(began_s * NANOSECONDS)
        self._tracer.start_span(name, context, start_time=started, attributes={"job": job, **attributes}).end()
