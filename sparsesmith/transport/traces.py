"""Traces of jobs across the services, for OpenTelemetry (extra `tracing`, off unless an address is set).

Nothing travels for them: the trace's id is made of the job's, which every message carries. So evaluators and trainers
of any release join in or stay out, and a job that is taken up again goes on in its trace. Spans are told when they end;
the job's own, parent of all others, comes last.
"""

import hashlib
import importlib.util
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from sparsesmith.errors import InvalidOption

Attribute = str | int | float | bool
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Traces(Protocol):
    """Takes spans of jobs. `job` is a job's id, or that of anything made for it: `JOB.RUN-N`, `JOB.RUN-N:CANDIDATE`."""

    def told(self, name: str, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """A span that ends now; `began_s` is seconds since 1970."""
        ...

    def job_ended(self, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """The job's own span, the parent of all others of its trace."""
        ...


class NoTraces:
    """Nobody asked for any."""

    def told(self, name: str, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """Nothing."""

    def job_ended(self, job: str, began_s: float, attributes: Mapping[str, Attribute]) -> None:
        """Nothing."""


NO_TRACES = NoTraces()


@contextmanager
def span(traces: Traces, name: str, job: str) -> Iterator[dict[str, Attribute]]:
    """A span around what is done here, also where it fails; what is put into the dictionary is told with it."""
    began_s, attributes = time.time(), dict[str, Attribute]()
    try:
        yield attributes
    except BaseException as error:
        attributes["error.type"] = type(error).__name__
        raise
    finally:
        traces.told(name, job, began_s, attributes)


def traces_to(address: str, service: str) -> Traces:
    """Where spans go, over OTLP by HTTP (`http://HOST:4318/v1/traces`); nowhere without an address. Raises
    InvalidOption where what sends them is not installed."""
    if not address:
        return NO_TRACES
    if any(_is_absent(module) for module in NEEDED):
        raise InvalidOption(
            "traces_endpoint is set, and OpenTelemetry is not installed: pip install 'sparsesmith[tracing]'",
            field="traces_endpoint",
            value=address,
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from sparsesmith.transport.sent_traces import SentTraces

    return SentTraces(service, OTLPSpanExporter(endpoint=address))


def job_of(name: str) -> str:
    """The job that something was made for."""
    return name.partition(":")[0].partition(".")[0]


def trace_id_of(job: str) -> int:
    """Of 128 bits, as all services make it."""
    return int.from_bytes(_digest(job)[:16], "big") or 1


def span_id_of(job: str) -> int:
    """Of the job's own span: 64 bits."""
    return int.from_bytes(_digest(job)[16:24], "big") or 1


def _digest(job: str) -> bytes:
    return hashlib.sha256(f"sparsesmith job {job_of(job)}".encode()).digest()


def _is_absent(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # Of a package above it.
        return True
