"""What commit ffdd61c left behind is taken up: a server's volume, a trainer's state, what its client says.

`ffdd61c.tar.xz` was made by that commit's code (see write_ffdd61c.py.txt).
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from services.generator.jobs.ledger import Ledger
from services.generator.orders import KernelOrder
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.weights import check_weights, weights_path
from services.generator.search.kernel_cache import TunedKernelCache
from services.trainer.service import open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.training import resume, train
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.job_store import JobStore
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.tuned_kernel_store import TunedKernelStore
from sparsesmith_proto.api import Failed, Finished, Graded, JobStatus, TunedAnswer
from sparsesmith_proto.kernel import Passed
from tests.artifacts.answers import make_matrix
from tests.artifacts.answers import make_report as make_answer
from tests.generator.live_service import Evaluators, live_service
from tests.trainer.generators import generator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(Path(__file__).with_name("ffdd61c.tar.xz")) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python 3.11.0 to 3.11.3; the archive is our own.
            archive.extractall(folder)
    keep_for_good(folder / "ffdd61c" / "valkey" / "appendonlydir" / "appendonly.aof.1.incr.aof")
    return folder / "ffdd61c"


def keep_for_good(log: Path) -> None:
    """Its trainer gave a pattern a week more, counted from the day that the archive was made; that week is over."""
    stamped = re.compile(rb"(PEXPIREAT\r\n\$\d+\r\n[^\r]+\r\n\$13\r\n)1795924990\d{3}")
    kept, changed = stamped.subn(rb"\g<1>4160520190000", log.read_bytes())
    assert changed == 2
    log.write_bytes(kept)


@pytest.fixture
def address(written: Path, tmp_path: Path) -> Iterator[str]:
    """Of a server on its volume."""
    server = EmbeddedValkey(shutil.copytree(written / "valkey", tmp_path / "valkey"))
    server.start()
    yield server.address
    server.stop()


@pytest.fixture
def connection(address: str) -> Iterator[Redis]:
    connection = connect(address)
    yield connection
    connection.close()


def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    assert found
    return found


def test_jobs_that_it_accepted_are_answered_and_those_it_answered_are_kept(address: str) -> None:
    def ended(job_id: str) -> Finished | Graded | None:
        status = JobStatus.model_validate_json(client.get(f"/v1/kernels/{job_id}").content).status
        return status if isinstance(status, Finished | Graded) else None

    with live_service(address, Evaluators()) as client:
        tuned = until(lambda: ended("running"))
        graded = until(lambda: ended("queued"))
        assert isinstance(tuned, Finished) and isinstance(tuned.report.answer, TunedAnswer)
        assert isinstance(graded, Graded)
        assert ended("finished") == Finished(report=make_answer(make_matrix()))
        listed = client.get("/v1/kernels").json()["jobs"]
        assert [job["job_id"] for job in listed] == ["queued", "running"], (
            "it kept no list; those that it left are in ours"
        )
        header = client.get("/v1/kernels/finished/artifact", params={"kind": "hpp"})
        assert header.is_success and "compiled by an unknown toolchain, sm_90" in header.text


def test_its_statuses_requests_and_events_are_read(connection: Redis) -> None:
    store = JobStore(connection)
    assert store.unfinished() == ["running", "queued"]
    assert isinstance(store.status("failed").status, Failed)
    assert [event.status.status.state for event in store.events("finished")] == ["queued", "finished"]
    ledger = Ledger(store, PatternStore(connection))
    orders = [job.order for job in map(asyncio.run, map(ledger.taken_up, store.unfinished())) if job is not None]
    assert [order.kind for order in orders] == ["kernel", "evaluation"]
    running = orders[0]
    assert isinstance(running, KernelOrder) and running.workload.values is not None and running.workload.pattern
    values = PatternStore(connection).get_values(running.workload.values)
    assert np.array_equal(values.array, make_matrix().data)
    assert PatternStore(connection).get(running.workload.pattern).nnz == values.array.size


def test_a_kept_answer_serves_the_same_question(connection: Redis) -> None:
    job = asyncio.run(Ledger(JobStore(connection), PatternStore(connection)).job("finished"))
    assert isinstance(job.order, KernelOrder)
    cache = TunedKernelCache(TunedKernelStore(connection), ttl_s=60)
    assert asyncio.run(cache.find(job.order, None)) == make_answer(make_matrix())


def test_an_evaluation_that_it_queued_is_graded(address: str, connection: Redis) -> None:
    queue = EvaluationQueue(connection)
    assert queue.depth() == 1
    environment = {
        **os.environ,
        "SPARSESMITH_REDIS_URL": address,
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
    }
    command = [sys.executable, "-m", "services.evaluator", "--burst"]
    ran = subprocess.run(command, env=environment, cwd=ROOT, timeout=280, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = queue.wait("queued.1", 1)
    assert report is not None
    assert isinstance(report.evaluations[0].outcome, Passed), report.evaluations[0].outcome


def test_records_that_it_did_not_acknowledge_come_again_with_those_behind_them(connection: Redis) -> None:
    stream = RewardStream(connection)
    read = [*stream.read("trainer", 10, 100), *stream.read("trainer", 10, 100)]
    assert [each.record.record_id for each in read] == [f"waiting:{number}" for number in range(4)]


def test_its_policy_and_published_weights_are_read(written: Path, connection: Redis) -> None:
    announcement = PolicyChannel(connection).latest()
    assert announcement is not None and announcement.version == 1
    weights = weights_path(written / "exchange", announcement)
    check_weights(weights, announcement, PolicyFolder(written / "model").shapes)


def test_training_goes_on_from_its_checkpoint(written: Path, address: str, connection: Redis, tmp_path: Path) -> None:
    for name in ("model", "state", "exchange"):
        shutil.copytree(written / name, tmp_path / name)
    settings = TrainerSettings(
        redis_url=address,
        policy_dir=tmp_path / "model",
        exchange_dir=tmp_path / "exchange",
        state_dir=tmp_path / "state",
        device="cpu",
        batch_records=4,
        min_records=2,
        max_wait_s=0.1,
        max_text_tokens=256,
    )
    workshop = open_workshop(settings, connection)
    state = resume(workshop)
    assert (state.step, state.used) == (1, ("used:0", "used:1"))
    assert state.version == 2, "the weights are its own, with room for ids: another file than it published"
    (path,) = (written / "state" / "checkpoints").glob("*.pt")
    saved = torch.load(path, weights_only=True)["learner"]["networks"]["model.model.embed_tokens.weight"]
    assert torch.equal(workshop.learner.networks.state_dict()["model.model.embed_tokens.weight"], saved)
    end = time.monotonic() + 120
    with generator(address):
        train(workshop, lambda: time.monotonic() > end, max_updates=1)
    assert RewardStream(connection).length() == 0
    updates = [json.loads(line) for line in (settings.state_dir / "updates.jsonl").read_text().splitlines()]
    assert [update["step"] for update in updates] == [1, 2]


def requests_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((path / "requests.json").read_text())
    return found


@pytest.mark.parametrize("number", range(4), ids=["spmv", "spmm", "values fixed", "a program"])
def test_what_its_client_posts_is_accepted_and_answered(number: int, written: Path, address: str) -> None:
    request = requests_of(written)[number]
    with live_service(address, Evaluators()) as client:
        headers = {**request["headers"], "Prefer": "wait=60"}
        answer = client.post(request["path"], content=request["body"].encode("latin-1"), headers=headers, timeout=90)
        assert answer.is_success, answer.text
        assert isinstance(JobStatus.model_validate_json(answer.content).status, Finished | Graded)
