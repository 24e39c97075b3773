"""`sparsesmith keys`: an operator's way to a server's keys, and a user's way in with one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsesmith.cli.keys import redis_address
from sparsesmith.client import Client
from sparsesmith.errors import QuotaExceeded, Unauthorized, Unavailable
from sparsesmith.transport.connection import connect
from sparsesmith.transport.quarantine import Quarantine
from tests.cli.shell import FAST, Shell, assert_one_line
from tests.generator.live_service import Evaluators, live_service


@pytest.fixture
def closed_server(redis_url: str, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that asks for keys; the commands find it and its Redis by the environment."""
    monkeypatch.setenv("SPARSESMITH_REDIS_URL", redis_url)
    with live_service(redis_url, evaluators, keys="on") as http:
        monkeypatch.setenv("SPARSESMITH_URL", str(http.base_url))
        yield str(http.base_url)


def test_a_key_is_made_used_listed_and_revoked(
    closed_server: str, sparsesmith_command: Shell, matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_one_line(sparsesmith_command("tune", matrix, *FAST), "asks for a key")
    made = sparsesmith_command("keys", "create", "alice", "--unfinished-jobs", 5)
    key = made.out.strip()
    assert (made.code, key.count("\n"), key in made.err) == (0, 0, False)
    assert "shown this once" in made.err
    monkeypatch.setenv("SPARSESMITH_KEY", key)
    assert sparsesmith_command("tune", matrix, *FAST).code == 0
    listed = sparsesmith_command("keys", "list")
    assert "alice" in listed.out and "0 of 5" in listed.out and "opens" in listed.out
    assert key.split("_", 2)[2] not in listed.out
    assert_one_line(sparsesmith_command("keys", "create", "alice"), "there is a key 'alice' already")
    assert "is revoked" in sparsesmith_command("keys", "revoke", "alice").out
    refused = sparsesmith_command("tune", matrix, *FAST)
    assert_one_line(refused, "asks for a key")
    assert key not in refused.err
    audit = sparsesmith_command("keys", "audit").out.splitlines()
    assert [line.split()[1] for line in audit[1:]] == ["alice"] * 3
    assert "job accepted" in audit[2] and "tune spmv float32 of matrix" in audit[2]


def test_what_the_commands_print_can_be_read_by_programs(closed_server: str, sparsesmith_command: Shell) -> None:
    made = json.loads(sparsesmith_command("keys", "create", "alice", "--bytes", 7, "--json").out)
    assert made["key"].startswith(f"ssk_{made['record']['key_id']}_")
    assert made["record"]["quotas"]["bytes_a_day"] == 7
    (listed,) = json.loads(sparsesmith_command("keys", "list", "--json").out)
    assert listed == made["record"]
    assert json.loads(sparsesmith_command("keys", "revoke", "alice", "--json").out)["revoked_at"] is not None
    lines = [json.loads(line) for line in sparsesmith_command("keys", "audit", "--json").out.splitlines()]
    assert [line["action"] for line in lines] == ["key_created", "key_revoked"]


def test_a_quota_out_of_range_is_named(closed_server: str, sparsesmith_command: Shell) -> None:
    ended = sparsesmith_command("keys", "create", "alice", "--unfinished-jobs", 0)
    assert_one_line(ended, "unfinished_jobs", "greater than or equal to 1")


def test_where_the_keys_are_is_told_by_the_environment_else_by_the_stack_s_folder(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no server's Redis is known here"):
        redis_address(tmp_path, {})
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "address").write_text("unix:///embedded\n")
    assert redis_address(tmp_path, {}) == "unix:///embedded"
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "SPARSESMITH_REDIS_URL").write_text("redis://:password@redis:6379/0")
    environment = {"SPARSESMITH_SECRETS_DIR": str(secrets)}
    assert redis_address(tmp_path, environment) == "redis://:password@redis:6379/0"
    assert redis_address(tmp_path, environment | {"REDIS_URL": "redis://told"}) == "redis://told"


def test_the_client_sends_its_key_and_is_told_what_is_used_up(
    closed_server: str, sparsesmith_command: Shell, evaluators: Evaluators, matrix: Path
) -> None:
    key = sparsesmith_command("keys", "create", "alice", "--unfinished-jobs", 1).out.strip()
    with Client(closed_server) as stranger, pytest.raises(Unauthorized):
        stranger.jobs()
    evaluators.released.clear()
    with Client(closed_server, key=key) as client:
        job = client.submit(matrix.name, matrix.read_bytes())
        with pytest.raises(QuotaExceeded) as told:
            client.submit(matrix.name, matrix.read_bytes())
        assert (told.value.field, told.value.limit, told.value.retry_after_s) == ("unfinished_jobs", "1", 5)
        assert client.permalink(job.job_id).path.startswith(f"/jobs/{job.job_id}?secret=")
        evaluators.released.set()
        client.wait(job.job_id)


def test_gpus_in_quarantine_are_listed_and_released(
    redis_url: str, sparsesmith_command: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSESMITH_REDIS_URL", redis_url)
    Quarantine(connect(redis_url)).add("GPU-1", "evaluator-a", "corrected errors from 0 to 1 while job x ran")
    shown = sparsesmith_command("gpus", "list").out
    assert "GPU-1" in shown
    assert "corrected errors from 0 to 1" in shown
    assert sparsesmith_command("gpus", "release", "GPU-1").code == 0
    assert json.loads(sparsesmith_command("gpus", "list", "--json").out) == []
    assert_one_line(sparsesmith_command("gpus", "release", "GPU-1"), "no GPU GPU-1 is in quarantine")
