"""Versions of a policy over HTTP and on the command line: a real generator whose engine is not started."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from services.generator.channels import Channels
from services.generator.http.app import create_app
from services.generator.service import Service
from services.generator.settings import GeneratorSettings
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.api import PolicyStatus
from sparsesmith_proto.policy import ProbeScores, Verdict
from tests.cli.shell import Shell
from tests.generator.tiny_policy import make_policy, publish, write_policy

WORSE = "pass share is 0.203 below that of version 2, which serves (z = 3.4, limit 2.0)"
SCORES = ProbeScores(
    num_samples=64, compile_share=1.0, pass_share=0.875, mean_reward=0.5, logprob_gap=0.004, logprob_gap_program=0.03
)


@pytest.fixture
def channel(redis_connection: Redis) -> PolicyChannel:
    return PolicyChannel(redis_connection)


@pytest.fixture
def app(tmp_path: Path, redis_url: str, channel: PolicyChannel) -> FastAPI:
    """Versions 1 and 2 were accepted, 3 was refused."""
    exchange_dir = tmp_path / "exchange"
    exchange_dir.mkdir()
    for version in (1, 2, 3):
        announcement = publish(exchange_dir, make_policy(seed=version, version=version))
        channel.announce(announcement)
        is_worse = version == 3
        verdict = Verdict(
            announcement=announcement,
            decision="refused" if is_worse else "accepted",
            reason=WORSE if is_worse else "no worse",
            decided_at="2026-11-22T00:00:00Z",
            scores=SCORES,
        )
        assert channel.judge(verdict)
    policy_dir = write_policy(tmp_path / "policy", make_policy())
    settings = GeneratorSettings(redis_url=redis_url, policy_dir=policy_dir, exchange_dir=exchange_dir)
    service = Service(settings, Channels(redis_url))
    assert service.watch is not None
    service.watch.standing = channel.standing()  # As its first look would have it.
    service.watch.announcement = service.watch.standing.serving
    return create_app(service)


@pytest.fixture
def server(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    monkeypatch.setenv("SPARSESMITH_URL", url)
    yield url
    server.should_exit = True
    thread.join(10)


def test_the_policy_tells_what_serves_and_what_was_decided_of_each_version(server: str) -> None:
    status = PolicyStatus.model_validate_json(httpx.get(f"{server}/v1/policy").content)
    assert (status.version, status.under_probe) == (2, None)
    assert [(each.version, each.decision) for each in status.verdicts] == [
        (1, "accepted"),
        (2, "accepted"),
        (3, "refused"),
    ]
    assert status.verdicts[2].reason == WORSE


def test_prometheus_sees_what_serves_and_how_many_were_refused(server: str) -> None:
    lines = httpx.get(f"{server}/metrics").text.splitlines()
    assert "sparsesmith_policy_version 2.0" in lines
    assert "sparsesmith_policy_under_probe 0.0" in lines
    assert 'sparsesmith_policy_verdicts{decision="accepted"} 2.0' in lines
    assert 'sparsesmith_policy_verdicts{decision="refused"} 1.0' in lines
    assert 'sparsesmith_policy_probe{measure="logprob_gap"} 0.004' in lines


def test_an_operator_rolls_back_over_http(server: str, channel: PolicyChannel) -> None:
    address = f"{server}/operator/policy/rollback"
    status = PolicyStatus.model_validate_json(httpx.post(address, json={}).content)
    assert (status.version, channel.standing().serving_version) == (1, 1)
    assert httpx.post(address, json={"version": 1}).status_code == 409
    refused = httpx.post(address, json={"version": 3})
    assert (refused.status_code, refused.json()["field"]) == (404, "version")
    assert httpx.post(address, json={"version": -1}).status_code == 422
    assert httpx.post(address, json={"version": 0}).status_code == 200
    assert channel.standing().serving is None


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{\x80}", "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b"", "application/json", 422),
        (b'{"version": 1, "versions": 2}', "application/json", 422),
        (b'{"version": 1}', "text/plain", 415),
    ],
)
def test_a_wish_that_is_no_message_is_refused(
    server: str, channel: PolicyChannel, content: bytes, media_type: str, status: int
) -> None:
    answer = httpx.post(f"{server}/operator/policy/rollback", content=content, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert channel.standing().serving_version == 2


@pytest.mark.parametrize("host", ["10.0.0.9", "2001:db8::1", "testclient"])
def test_nobody_rolls_back_from_another_machine(app: FastAPI, channel: PolicyChannel, host: str) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(host, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.post("/operator/policy/rollback", json={})

    assert asyncio.run(ask()).status_code == 403
    assert channel.standing().serving_version == 2


def test_policy_shows_the_version_in_service_and_what_became_of_the_newest(
    sparsesmith_command: Shell, server: str
) -> None:
    for arguments in (("policy",), ("policy", "show")):
        shown = sparsesmith_command(*arguments)
        assert shown.code == 0
        assert "version    2" in shown.out
        assert f"version 3 was refused at 2026-11-22T00:00:00Z: {WORSE}" in " ".join(shown.out.split())


def test_policy_list_has_a_line_a_version(sparsesmith_command: Shell, server: str) -> None:
    lines = sparsesmith_command("policy", "list").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["version", "state"],
        ["0", "shipped"],
        ["1", "accepted"],
        ["2", "accepted,"],
        ["3", "refused"],
    ]
    assert lines[3].split()[2:7] == ["serves", "100%", "88%", "0.500", "0.0040"]
    assert lines[4].endswith(WORSE)
    listed = json.loads(sparsesmith_command("policy", "list", "--json").out)
    assert [each["decision"] for each in listed] == ["accepted", "accepted", "refused"]


def test_policy_rollback_goes_back_one_version_or_to_the_one_named(
    sparsesmith_command: Shell, server: str, channel: PolicyChannel
) -> None:
    assert "version    1" in sparsesmith_command("policy", "rollback").out
    assert json.loads(sparsesmith_command("policy", "rollback", "0", "--json").out)["version"] == 0
    assert channel.standing().serving_version == 0
    failed = sparsesmith_command("policy", "rollback", "3")
    assert failed.code == 2
    assert failed.err.endswith("error: version 3 is not an accepted one\n")
