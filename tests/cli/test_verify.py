"""`sparsesmith verify`: reports of a server that signs them, with and without the server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import FAST, Shell, assert_one_line
from tests.generator.live_service import Evaluators, live_service


@pytest.fixture
def signing_server(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with live_service(redis_url, Evaluators(), cache_ttl_s=0, keys="on", signing_dir=tmp_path / "signing") as http:
        monkeypatch.setenv("SPARSESMITH_URL", str(http.base_url))
        (tmp_path / "key.json").write_text(http.get("/v1/signing-key").text)  # To anybody, without an API key.
        yield str(http.base_url)


@pytest.fixture
def report(redis_url: str, tmp_path: Path, matrix: Path, sparsesmith_command: Shell) -> Path:
    """Of an answer that was saved."""
    with live_service(redis_url, Evaluators(), cache_ttl_s=0, signing_dir=tmp_path / "signing") as http:
        tuned = sparsesmith_command("tune", matrix, "--out", tmp_path / "answer", "--url", http.base_url, *FAST)
    assert tuned.code == 0, tuned.err
    (path,) = (tmp_path / "answer").glob("*.json")
    return path


def test_a_saved_answer_is_genuine_offline_and_by_the_server_and_a_changed_time_is_not(
    report: Path, signing_server: str, sparsesmith_command: Shell, tmp_path: Path
) -> None:
    key = tmp_path / "key.json"
    by_server = sparsesmith_command("verify", report)
    assert by_server.code == 0
    assert json.loads(key.read_text())["key_id"] in by_server.out
    offline = sparsesmith_command("verify", report, "--key", key, "--url", "http://127.0.0.1:9")
    assert (offline.code, offline.out) == (0, by_server.out)
    document = json.loads(report.read_text())
    assert json.loads(sparsesmith_command("verify", report, "--key", key, "--json").out) == document
    document["answer"]["best"]["outcome"]["timing"]["median_us"] /= 2
    report.write_text(json.dumps(document))
    forged = sparsesmith_command("verify", report, "--key", key)
    assert (forged.code, forged.out) == (3, "")
    assert "not genuine: the report is not what key" in forged.err


def test_a_server_that_signs_nothing_says_so(server: str, sparsesmith_command: Shell, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    assert_one_line(sparsesmith_command("verify", report), "signs no reports")
    assert_one_line(sparsesmith_command("verify", tmp_path / "nothing.json", "--key", report), "no Ed25519 public key")
