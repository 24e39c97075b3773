"""Backup and restore, rehearsed: what a server had is there at the next one, after its folder is gone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsesmith.artifacts.signing import read_key, verified
from sparsesmith.errors import Conflict, InvalidInput, NotFound
from sparsesmith.runtime.backup import CONTENTS, SNAPSHOT, back_up, restore
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas
from tests.generator.live_service import Evaluators, live_service

RELEASE = "1.2.3"
MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
REQUEST = {"matrix": MATRIX, "budget": {"candidates": 2, "seconds": 20}}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """Of a state folder."""
    server = EmbeddedValkey(tmp_path / "state" / "valkey")
    server.start()
    yield server
    server.stop()


def test_jobs_permalinks_keys_and_signed_reports_outlive_the_folder(valkey: EmbeddedValkey, tmp_path: Path) -> None:
    state, copy, fresh = tmp_path / "state", tmp_path / "copy", tmp_path / "fresh"
    for name in ("policy", "trainer/checkpoints", "logs"):
        (state / name).mkdir(parents=True)
    (state / "policy" / "policy-3.safetensors").write_bytes(b"weights")
    (state / "trainer" / "checkpoints" / "3").write_bytes(b"a checkpoint")
    (state / "logs" / "generator.log").write_text("not copied")
    _, text = KeyStore(connect(valkey.address)).create("alice", Quotas())
    key = {"Authorization": f"Bearer {text}"}
    with live_service(valkey.address, Evaluators(), keys="on", signing_dir=state / "signing") as http:
        job = http.post("/v1/kernels", json=REQUEST, headers={**key, "Prefer": "wait=20"}).headers["location"]
        secret = {"X-Job-Secret": http.get(f"{job}/permalink", headers=key).json()["secret"]}
        before, public = http.get(job, headers=key).json(), http.get("/v1/signing-key").content
        assert before["status"]["state"] == "finished"
        contents = back_up(state, copy, RELEASE)  # While the stack runs.
    valkey.stop()
    shutil.rmtree(state)

    assert restore(copy, fresh) == contents
    assert (fresh / "policy" / "policy-3.safetensors").read_bytes() == b"weights"
    assert (fresh / "trainer" / "checkpoints" / "3").read_bytes() == b"a checkpoint"
    assert not (fresh / "logs").exists()
    again = EmbeddedValkey(fresh / "valkey")
    again.start()
    try:
        with live_service(again.address, Evaluators(), keys="on", signing_dir=fresh / "signing") as http:
            assert http.get(job, headers=key).json() == before
            assert http.get(job, headers=secret).json() == before
            assert http.get(job).status_code == 401
            report = http.get(f"{job}/artifact", params={"kind": "json"}, headers=secret).content
            verified(report, read_key(public))
            assert http.get(f"{job}/matrix", headers=key).json()["nnz"] == 4
    finally:
        again.stop()


def test_a_stack_that_does_not_run_is_copied_too_and_a_restored_one_goes_on_writing(
    valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    connect(valkey.address).set("x", "1")
    valkey.stop()
    back_up(tmp_path / "state", tmp_path / "copy", RELEASE)
    restore(tmp_path / "copy", tmp_path / "fresh")
    for value in (b"1", b"2"):  # A change after the restoration outlives the server, too.
        again = EmbeddedValkey(tmp_path / "fresh" / "valkey")
        again.start()
        try:
            connection = connect(again.address)
            assert connection.get("x") == value
            connection.set("x", "2")
        finally:
            again.stop()


def test_a_damaged_backup_is_refused_by_the_name_of_the_file_and_nothing_is_written(
    valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    back_up(tmp_path / "state", tmp_path / "copy", RELEASE)
    with (tmp_path / "copy" / SNAPSHOT).open("ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidInput, match=f"{SNAPSHOT} is missing or damaged"):
        restore(tmp_path / "copy", tmp_path / "fresh")
    (tmp_path / "copy" / SNAPSHOT).unlink()
    with pytest.raises(InvalidInput, match=f"{SNAPSHOT} is missing or damaged"):
        restore(tmp_path / "copy", tmp_path / "fresh")
    (tmp_path / "copy" / CONTENTS).write_text(json.dumps({"files": {}}))
    with pytest.raises(NotFound, match="no backup"):
        restore(tmp_path / "copy", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_nothing_that_is_there_is_written_over(valkey: EmbeddedValkey, tmp_path: Path) -> None:
    back_up(tmp_path / "state", tmp_path / "copy", RELEASE)
    with pytest.raises(Conflict, match="is not empty"):
        back_up(tmp_path / "state", tmp_path / "copy", RELEASE)
    with pytest.raises(Conflict, match="is there already"):
        restore(tmp_path / "copy", tmp_path / "state")
    with pytest.raises(NotFound, match="no state folder"):
        back_up(tmp_path / "nothing", tmp_path / "other", RELEASE)
