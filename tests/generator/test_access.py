"""A server that asks for keys: who is let in, to what, and how much."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from services.generator.http.access import asks_for_keys
from services.generator.settings import GeneratorSettings
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.audit import AuditLog
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas
from tests.generator.live_service import Evaluators, live_service
from tests.generator.processes import ServiceProcess, free_port, wait_until

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
REQUEST = {"matrix": MATRIX, "budget": {"candidates": 2, "seconds": 20}}
WAIT = {"Prefer": "wait=20"}
OPEN = ("/", "/compare", "/fleet", "/docs", "/openapi.json", "/healthz", "/readyz", "/jobs/x")


@dataclass
class Server:
    """A service that asks for keys, and where they are kept."""

    http: httpx.Client
    redis: Redis
    evaluators: Evaluators

    def key(self, name: str, **quotas: float) -> dict[str, str]:
        """A new key, as a header."""
        text = KeyStore(self.redis).create(name, Quotas.model_validate(quotas))[1]
        return {"Authorization": f"Bearer {text}"}

    def post(self, headers: dict[str, str], **changes: Any) -> httpx.Response:
        return self.http.post("/v1/kernels", json={**REQUEST, **changes}, headers=headers)

    def job(self, headers: dict[str, str]) -> str:
        """The address of one that has ended."""
        answer = self.post(headers | WAIT)
        assert answer.status_code == 200, answer.text
        return str(answer.headers["location"])


@pytest.fixture
def server(redis_url: str) -> Iterator[Server]:
    evaluators = Evaluators()
    with live_service(redis_url, evaluators, keys="on") as http:
        yield Server(http, connect(redis_url), evaluators)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "localhost"}, False),
        ({"host": "0.0.0.0", "published_on": "127.0.0.1"}, False),
        ({"host": "0.0.0.0", "published_on": "[::1]"}, False),
        ({"host": "127.0.0.1", "published_on": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "published_on": "gpu.example"}, True),
        ({"host": "0.0.0.0", "keys": "off"}, False),
        ({"keys": "on"}, True),
    ],
)
def test_keys_are_asked_for_where_others_can_reach_the_service(settings: dict[str, str], expected: bool) -> None:
    assert asks_for_keys(GeneratorSettings.model_validate(settings)) is expected


def test_without_keys_everything_is_as_it_was(redis_url: str) -> None:
    with live_service(redis_url, Evaluators()) as http:
        answer = http.post("/v1/kernels", json=REQUEST, headers=WAIT | {"Authorization": "Bearer of a proxy"})
        location = answer.headers["location"]
        assert answer.status_code == 200
        assert http.get("/v1/kernels").json()["jobs"]
        assert http.get(f"{location}/permalink").json() == {
            "path": f"/jobs/{location.rpartition('/')[2]}",
            "secret": None,
        }
    assert [each.key_id for each in AuditLog(connect(redis_url)).newest(9)] == [None]


def test_no_key_and_every_wrong_one_are_answered_alike(server: Server) -> None:
    right = server.key("alice")["Authorization"]
    location = server.job({"Authorization": right})
    server.key("gone")
    revoked = KeyStore(server.redis).create("revoked", Quotas())[1]
    KeyStore(server.redis).revoke("revoked")
    answers = set()
    for path in (
        location,
        "/v1/kernels/none",
        "/v1/kernels",
        f"{location}/events",
        "/v1/fleet",
        "/metrics",
        "/nothing",
    ):
        for wrong in ("", "Bearer", f"Bearer {revoked}", right[:-1], right.replace("Bearer", "Basic"), right + "x"):
            answer = server.http.get(path, headers={"Authorization": wrong} if wrong else {})
            assert answer.headers["www-authenticate"] == "Bearer"
            answers.add((answer.status_code, answer.text))
        answer = server.http.get(path, params={"secret": "wrong"})
        answers.add((answer.status_code, answer.text))
    answers.add((server.post({}).status_code, server.post({}).text))
    answers.add((server.http.delete(location).status_code, server.http.delete(location).text))
    ((status, text),) = answers
    assert status == 401
    assert set(json.loads(text)) == {"type", "title", "status", "detail"}
    assert "alice" not in text


def test_what_says_nothing_of_jobs_is_open_and_every_route_that_is_not_listed_is_closed(server: Server) -> None:
    assert {path: server.http.get(path).status_code for path in OPEN} == dict.fromkeys(OPEN, 200)
    document = server.http.get("/openapi.json").json()
    closed = [path for path, methods in document["paths"].items() if "security" in next(iter(methods.values()))]
    assert len(closed) > 15
    for path in closed:
        for method in document["paths"][path]:
            assert server.http.request(method, path.replace("{job_id}", "x")).status_code == 401, (method, path)


def test_the_document_declares_the_keys_and_where_they_are_needed(server: Server, redis_url: str) -> None:
    document = server.http.get("/openapi.json").json()
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    schemes = document["components"]["securitySchemes"]
    assert (schemes["key"]["type"], schemes["key"]["scheme"]) == ("http", "bearer")
    assert document["paths"]["/v1/kernels"]["post"]["security"] == [{"key": []}]
    assert {"key": []} in document["paths"]["/v1/kernels/{job_id}"]["get"]["security"]
    assert {"permalink": []} in document["paths"]["/v1/kernels/{job_id}"]["get"]["security"]
    assert document["paths"]["/v1/kernels/{job_id}"]["delete"]["security"] == [{"key": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
    refusals = document["paths"]["/v1/kernels"]["post"]["responses"]
    assert "WWW-Authenticate" in refusals["401"]["headers"] and "Retry-After" in refusals["429"]["headers"]
    with live_service(redis_url, Evaluators()) as loopback:
        optional = loopback.get("/openapi.json").json()["paths"]["/v1/kernels"]["post"]["security"]
    assert optional == [{}, {"key": []}]


def test_a_job_of_another_key_is_as_one_that_does_not_exist(server: Server) -> None:
    alice, bob = server.key("alice"), server.key("bob")
    location = server.job(alice)
    job_id = location.rpartition("/")[2]
    parts = ("", "/events", "/candidates", "/matrix", "/density", "/listing", "/artifact", "/permalink")
    for collection in ("kernels", "evaluations"):
        for part in parts:
            mine = server.http.get(f"/v1/{collection}/{job_id}{part}", headers=bob)
            none = server.http.get(f"/v1/{collection}/{job_id[::-1]}{part}", headers=bob)
            assert (mine.status_code, none.status_code) == (404, 404), part
            assert mine.text == none.text.replace(job_id[::-1], job_id)
    assert server.http.delete(location, headers=bob).status_code == 404
    assert server.http.get(location, headers=alice).status_code == 200
    assert [each["job_id"] for each in server.http.get("/v1/kernels", headers=alice).json()["jobs"]] == [job_id]
    assert server.http.get("/v1/kernels", headers=bob).json()["jobs"] == []


def test_a_permalink_opens_its_job_for_reading_and_nothing_else(server: Server) -> None:
    alice, bob = server.key("alice"), server.key("bob")
    location, other = server.job(alice), server.job(alice)
    link = server.http.get(f"{location}/permalink", headers=alice).json()
    secret = {"secret": link["secret"]}
    for part in ("", "/events", "/candidates", "/matrix", "/artifact", "/permalink"):
        assert server.http.get(location + part, params=secret).status_code == 200, part
        assert server.http.get(location + part, headers={"X-Job-Secret": link["secret"]}).status_code == 200, part
    assert server.http.get(location, params=secret, headers=bob).status_code == 200
    assert server.http.get(other, params=secret).status_code == 401
    assert server.http.get(other, params=secret, headers=bob).status_code == 404
    assert server.http.delete(location, params=secret).status_code == 401
    assert server.http.delete(location, params=secret, headers=bob).status_code == 404
    assert server.http.get("/v1/kernels", params=secret).status_code == 401
    page = server.http.get(link["path"])
    assert "faster than" in page.text and f"?secret={link['secret']}" in page.text
    locked = {server.http.get(path).text for path in (link["path"].partition("?")[0], "/jobs/none", link["path"] + "x")}
    assert len(locked) == 1
    assert "faster than" not in locked.pop()


def test_a_quota_that_is_used_up_is_told_with_its_limit_and_when_it_renews(server: Server) -> None:
    alice = server.key("alice", unfinished_jobs=1)
    server.evaluators.released.clear()
    first = server.post(alice | {"Idempotency-Key": "k"})
    refused = server.post(alice, element_type="float64")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert refused.json()["type"] == "/problems/quota-exceeded"
    assert (refused.json()["field"], refused.json()["limit"]) == ("unfinished_jobs", "1")
    assert server.post(alice | {"Idempotency-Key": "k"}).json()["job_id"] == first.json()["job_id"]
    assert server.post(alice | {"Idempotency-Key": "other"}).status_code == 429
    assert server.post(server.key("bob")).status_code == 202
    server.evaluators.released.set()
    assert server.http.get(first.headers["location"], headers=alice | WAIT).json()["status"]["state"] == "finished"
    assert server.post(alice).status_code == 202


def test_evaluators_seconds_bytes_and_requests_have_quotas(server: Server) -> None:
    busy = server.key("busy", evaluator_seconds_a_day=10)
    Accounts(server.redis).charge_seconds(server.job(busy).rpartition("/")[2] + ".run-0", 10)
    refused = server.post(busy)
    assert (refused.status_code, refused.json()["field"]) == (429, "evaluator_seconds_a_day")
    assert 0 < int(refused.headers["retry-after"]) <= 24 * 3600
    assert "renewed at" in refused.json()["detail"]
    body = json.dumps(REQUEST).encode()
    sender = server.key("sender", bytes_a_day=2 * len(body) + 10)
    sent = {"Content-Type": "application/json", **sender}
    codes = [server.http.post("/v1/kernels", content=body, headers=sent).status_code for _ in range(3)]
    assert codes == [202, 202, 429]
    eager = server.key("eager", requests_a_minute=1)
    codes = [server.http.get("/v1/kernels", headers=eager).status_code for _ in range(4)]
    assert codes.count(429) >= 2  # A minute may have begun in between.


def test_a_body_is_counted_as_it_was_sent_also_where_it_did_not_say_how_long_it_is(server: Server) -> None:
    alice = server.key("alice", bytes_a_day=9 * 2**20)
    key_id = KeyStore(server.redis).all()[0].key_id
    body = json.dumps(REQUEST).encode()
    headers = {"Content-Type": "application/json", **alice}
    assert server.http.post("/v1/kernels", content=iter([body[:9], body[9:]]), headers=headers).status_code == 202
    wait_for_bytes(server, key_id, len(body))
    assert server.http.post("/v1/kernels", content=b"{", headers=headers).status_code == 422
    wait_for_bytes(server, key_id, len(body) + 1)
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="m.mtx"\r\n\r\n'
    headers["Content-Type"] = "multipart/form-data; boundary=b"
    pieces = iter([head, *[b"%" * 2**20] * 12, b"\r\n--b--\r\n"])
    assert server.http.post("/v1/kernels", content=pieces, headers=headers).status_code == 429


def wait_for_bytes(server: Server, key_id: str, num_bytes: int) -> None:
    """What was reserved too much is given back right after the answer."""
    end = time.monotonic() + 10
    while Accounts(server.redis).used(key_id).num_bytes != num_bytes:
        assert time.monotonic() < end, Accounts(server.redis).used(key_id)
        time.sleep(0.01)


def test_who_ran_what_is_in_the_audit_log(server: Server) -> None:
    alice = server.key("alice")
    server.evaluators.released.clear()
    location = server.post(alice).headers["location"]
    assert server.http.delete(location, headers=alice).status_code == 204
    server.evaluators.released.set()
    made, accepted, cancelled = AuditLog(server.redis).newest(9)
    assert (made.action, made.name, made.client) == ("key_created", "alice", None)
    for entry, action in ((accepted, "job_accepted"), (cancelled, "job_cancelled")):
        assert (entry.action, entry.name, entry.client) == (action, "alice", "127.0.0.1")
        assert entry.job_id == location.rpartition("/")[2]
    assert accepted.detail.startswith("tune spmv float32 of matrix ")


def test_keys_take_turns_whatever_address_they_come_from(redis_url: str) -> None:
    evaluators = Evaluators()
    with live_service(redis_url, evaluators, keys="on", max_running_jobs=1, cache_ttl_s=0) as http:
        server = Server(http, connect(redis_url), evaluators)
        alice, bob = server.key("alice"), server.key("bob")
        evaluators.released.clear()
        server.post(alice)
        while not evaluators.jobs:
            time.sleep(0.01)
        types = ("float64", "float32")
        waiting = [server.post(alice, search="families", element_type=each).headers["location"] for each in types]
        late = server.post(bob, element_type="float64").headers["location"]
        evaluators.released.set()
        assert http.get(late, headers=bob | WAIT).json()["status"]["state"] == "finished"
        order = AuditLog(server.redis).newest(9)
        assert [each.name for each in order if each.action == "job_accepted"] == ["alice", "alice", "alice", "bob"]
        assert all(http.get(each, headers=alice | WAIT).status_code == 200 for each in waiting)


def test_a_generator_that_is_killed_loses_no_account(redis_url: str, tmp_path: Path) -> None:
    connection, port = connect(redis_url), free_port()
    key, text = KeyStore(connection).create("alice", Quotas(unfinished_jobs=1))
    body, url = json.dumps(REQUEST).encode(), f"http://127.0.0.1:{port}"
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}

    environment = {"KEYS": "on", "PORT": str(port), "POLICY_DIR": "", "EXCHANGE_DIR": str(tmp_path)}
    told = {f"SPARSESMITH_GENERATOR_{name}": value for name, value in environment.items()}
    first = ServiceProcess("services.generator", tmp_path / "generator.log", SPARSESMITH_REDIS_URL=redis_url, **told)
    try:
        wait_until(f"{url}/readyz", 120)
        location = httpx.post(f"{url}/v1/kernels", content=body, headers=headers, timeout=60).headers["location"]
        first.kill()
    finally:
        first.end()
    used = Accounts(connection).used(key.key_id)
    assert (used.unfinished_jobs, used.num_bytes) == (1, len(body))
    evaluators = Evaluators()
    evaluators.released.clear()
    with live_service(redis_url, evaluators, keys="on") as http:
        assert http.post("/v1/kernels", content=body, headers=headers).status_code == 429
        assert http.delete(location, headers=headers).status_code == 204
        assert Accounts(connection).used(key.key_id).unfinished_jobs == 0
        assert http.post("/v1/kernels", content=body, headers=headers).status_code == 202
    actions = [each.action for each in AuditLog(connection).newest(9)]
    assert actions == ["key_created", "job_accepted", "job_cancelled", "job_accepted"]
