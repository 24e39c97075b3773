"""How the generator listens: bounds on headers and slow clients, a name for each request, figures of all services."""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from services.evaluator.metrics import EvaluatorMetrics
from services.generator.channels import Channels
from services.generator.http.request_log import RequestIds
from services.generator.service import Service
from services.generator.settings import GeneratorSettings
from services.trainer.metrics import TrainerMetrics
from sparsesmith.transport.connection import connect
from sparsesmith.transport.metrics_channel import MetricsChannel, published
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_device, make_passed, make_report, make_timing

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
BODY = {"matrix": MATRIX, "search": "families", "budget": {"candidates": 2, "seconds": 20}}
WAIT = {"Prefer": "wait=20"}
POLICY = Path(__file__).resolve().parents[2] / "models" / "sparsesmith-28m"


@pytest.fixture
def client(redis_url: str) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators(), header_timeout_s=0.5, body_timeout_s=0.5) as client:
        yield client


def opened(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_headers_beyond_the_bound_are_refused_before_they_are_all_there(client: httpx.Client) -> None:
    sent = 0
    with opened(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
        try:
            while sent < 50_000_000:
                sent += connection.send(b"a" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = all_of(connection)
    assert sent < 20_000_000, "what the sockets hold, and no more"
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert client.get("/healthz", headers={"X-Long": "a" * 10_000}).status_code == 200
    assert client.get("/healthz", headers={"X-Long": "a" * 20_000}).status_code == 431


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_client_whose_headers_do_not_come_is_left(client: httpx.Client, begun: bytes) -> None:
    with opened(client) as connection:
        connection.sendall(begun)
        assert all_of(connection) == b""


def test_a_body_that_does_not_come_is_told_so(client: httpx.Client) -> None:
    head = b"POST /v1/kernels HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with opened(client) as connection:
        connection.sendall(head)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer


def test_a_body_that_trickles_is_given_up_though_it_never_pauses(client: httpx.Client) -> None:
    def trickle() -> Iterator[bytes]:
        while True:
            yield b" "
            time.sleep(0.1)

    began = time.monotonic()
    headers = {"content-type": "application/json"}
    with suppress(httpx.TransportError):  # The server has closed the connection after its answer.
        assert client.post("/v1/kernels", content=trickle(), headers=headers).status_code == 408
    assert time.monotonic() - began < 20


def test_an_answer_may_take_longer_than_headers_and_connections_are_kept(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(seconds=1.5), header_timeout_s=0.3) as client:
        assert client.post("/v1/kernels", json=BODY, headers=WAIT).status_code == 200
        for _ in range(3):
            assert client.get("/healthz").status_code == 200
            time.sleep(0.5)


def test_a_request_keeps_the_id_it_came_with_and_gets_one_otherwise(client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "batch-7.a"}).headers["x-request-id"] == "batch-7.a"
    for hostile in ("", "a b", "x" * 200, "é"):
        given = client.get("/nowhere", headers={b"X-Request-Id": hostile.encode()}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", given)


def test_a_request_is_logged_with_its_job_and_under_its_id(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(RequestIds())
    answer = client.post("/v1/kernels", json=BODY, headers={**WAIT, "X-Request-Id": "r1"})
    location = answer.headers["location"]
    client.get(f"{location}?a=b%0Ac")
    client.get("/healthz")
    time.sleep(0.1)
    lines = [(record.getMessage(), vars(record)["request"]) for record in caplog.records if "requests" in record.name]
    job_id = location.rpartition("/")[2]
    assert re.fullmatch(rf"POST /v1/kernels 200 in [\d.]+ s, \d+ bytes from 127.0.0.1, job '{job_id}'", lines[0][0])
    assert lines[0][1] == " [request r1]"
    assert lines[1][0].startswith(f"GET {location} 200")
    assert len(lines) == 2, "probes are not told while all is well"


def test_requests_are_counted_by_route(client: httpx.Client) -> None:
    client.get("/v1/kernels/none")
    client.get("/v1/kernels/other")
    client.get("/nowhere")
    text = client.get("/metrics").text
    assert 'sparsesmith_http_requests_total{method="GET",route="/v1/kernels/{job_id}",status="404"} 2.0' in text
    assert 'sparsesmith_http_requests_total{method="GET",route="unknown",status="404"} 1.0' in text
    assert "sparsesmith_evaluators 0.0" in text
    assert "sparsesmith_stored_matrix_bytes 0.0" in text


def test_figures_of_evaluators_and_trainer_come_through_the_generator(client: httpx.Client, redis_url: str) -> None:
    device = make_device()
    evaluators = [EvaluatorMetrics(device, {"device": True}), EvaluatorMetrics(device, {"device": True})]
    for number, evaluator in enumerate(evaluators):
        evaluator.graded(make_report([make_passed(make_timing(1))] * (number + 1)), 0.5)
    trainer = TrainerMetrics()
    trainer.updated({"version": 3, "seconds": 2.5, "skipped": {"stale": 2}, "mean_reward": 0.5, "unknown": "x"})
    registries = {
        "evaluator-a": evaluators[0].registry,
        "evaluator-b": evaluators[1].registry,
        "trainer": trainer.registry,
    }
    with connect(redis_url) as connection:
        channel = MetricsChannel(connection)
        for worker, registry in registries.items():
            with published(registry, channel, worker):
                pass
        channel.publish("broken", b"} no exposition {")
        text = client.get("/metrics").text
        for line in (
            'sparsesmith_evaluator_candidates_total{origin="family",outcome="passed",worker="evaluator-a"} 1.0',
            'sparsesmith_evaluator_candidates_total{origin="family",outcome="passed",worker="evaluator-b"} 2.0',
            'sparsesmith_trainer_updates_total{worker="trainer"} 1.0',
            'sparsesmith_trainer_version{worker="trainer"} 3.0',
            'sparsesmith_trainer_records_skipped_total{reason="stale",worker="trainer"} 2.0',
            'sparsesmith_trainer_figure{figure="mean_reward",worker="trainer"} 0.5',
        ):
            assert line in text
        assert text.count("# TYPE sparsesmith_evaluator_candidates_total counter") == 1
        connection.zadd("sparsesmith:metrics", {"evaluator-a": 0})
        assert "evaluator-a" not in client.get("/metrics").text


def test_metrics_are_published_while_a_worker_works_and_through_outages(redis_url: str) -> None:
    registry = CollectorRegistry()
    work = Counter("sparsesmith_work", "w", registry=registry)
    with connect(redis_url) as connection:
        channel = MetricsChannel(connection)
        with published(registry, channel, "w", every_s=0.05):
            work.inc()
            while "sparsesmith_work_total 1.0" not in channel.latest()["w"]:
                time.sleep(0.02)


def service(redis_url: str, **settings: Any) -> Service:
    return Service(GeneratorSettings(redis_url=redis_url, **settings), Channels(redis_url))


def test_while_the_engine_is_away_families_work_and_readiness_says_so(redis_url: str) -> None:
    loading = asyncio.run(service(redis_url, policy_dir=POLICY).readiness())
    assert (loading.status, loading.degraded) == (
        "ready",
        "the engine is loading: search=families works, search=auto without samples",
    )
    assert asyncio.run(service(redis_url, policy_dir=None).readiness()).degraded is None
