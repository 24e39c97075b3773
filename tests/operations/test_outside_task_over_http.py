"""A task of another package asked for over HTTP: real processes, a real Valkey, the interpreter."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparsesmith.client import Client
from sparsesmith.client.options import tuning_options
from sparsesmith.operations.texts import with_element_type
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith_proto.api import Finished, JobStatus, TunedAnswer
from sparsesmith_proto.kernel import FromFamily, Passed
from tests.generator.processes import ServiceProcess, free_port, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

OUTSIDE = Path(__file__).with_name("outside_task")
ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join(map(str, (OUTSIDE, ROOT, ROOT / "proto")))
AXES = {"rows": 64, "cols": 128}
NAIVE = with_element_type(
    (OUTSIDE / "row_softmax" / "programs" / "thread_a_row.cu.in").read_text(encoding="utf-8"), "float32"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a generator without a policy, and an evaluator, that know the task."""
    folder, port = tmp_path_factory.mktemp("task"), free_port()
    valkey = EmbeddedValkey(folder / "valkey")
    valkey.start()
    shared = {"SPARSESMITH_REDIS_URL": valkey.address, "PYTHONPATH": PATH}
    evaluator = ServiceProcess(
        "services.evaluator", folder / "evaluator.log", SPARSESMITH_EVALUATOR_DEVICE="interpreter", **shared
    )
    generator = ServiceProcess(
        "services.generator",
        folder / "generator.log",
        SPARSESMITH_GENERATOR_PORT=str(port),
        SPARSESMITH_GENERATOR_POLICY_DIR="",
        SPARSESMITH_GENERATOR_EXCHANGE_DIR=str(folder),
        **shared,
    )
    try:
        wait_until(f"http://127.0.0.1:{port}/healthz", 120)
        yield f"http://127.0.0.1:{port}"
    finally:
        generator.end()
        evaluator.end()
        valkey.stop()


def post(url: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/kernels", json=body, timeout=120, headers={"Prefer": "wait=60"})


def test_a_task_is_tuned_and_its_answer_kept(url: str) -> None:
    asked: dict[str, Any] = {"task": "row_softmax", "axes": AXES, "budget": {"candidates": 5, "seconds": 120}}
    status = JobStatus.model_validate_json(post(url, **asked).content)
    with Client(url) as client:
        report = client.wait(status.job_id)
        assert report.workload.pattern is None
        assert report.workload.axes == AXES
        assert (report.num_rows, report.nnz) == (None, None)
        assert [routine.routine for routine in report.baselines.routines] == ["thread_a_row"]
        assert report.search.outcomes == {"passed": 5}
        assert isinstance(report.answer, TunedAnswer)
        assert isinstance(report.answer.best.outcome, Passed)
        assert report.answer.best.outcome.storage_format == "none"
        families = {
            each.origin.family for each in client.candidates(status.job_id) if isinstance(each.origin, FromFamily)
        }
        assert families == {"row_softmax_programs", "row_softmax_lanes"}
        assert client.artifact(status.job_id, "cu").decode().startswith("//@ task row_softmax")
        header, loader = (client.artifact(status.job_id, kind).decode() for kind in ("hpp", "py"))
        assert "namespace sparsesmith_row_softmax_float32_rows64_cols128 {" in header
        assert "y = kernel(x)" in loader
        assert client.artifact(status.job_id, "zip")
        listed = client.jobs().jobs[0]
        assert (listed.workload.operation, listed.workload.axes) == ("row_softmax", AXES)
        again = JobStatus.model_validate_json(post(url, **asked).content)
        assert isinstance(again.status, Finished)
        assert again.status.report == report
        other = client.wait(
            client.submit_task(
                tuning_options(
                    operation="row_softmax", axes={"rows": 64, "cols": 127}, budget={"candidates": 2, "seconds": 120}
                )
            ).job_id
        )
        assert other.workload.axes == {"rows": 64, "cols": 127}


def test_a_program_of_ones_own_is_graded_on_a_task(url: str) -> None:
    options = tuning_options(operation="row_softmax", axes=AXES)
    with Client(url) as client:
        passed = client.grade_task(NAIVE, options).evaluation.outcome
        wrong = client.grade_task(NAIVE.replace("/ sum", ""), options).evaluation.outcome
    assert isinstance(passed, Passed)
    assert wrong.outcome == "mismatch"


def test_the_command_line_tunes_and_grades_a_task(url: str, tmp_path: Path) -> None:
    program = tmp_path / "mine.cu"
    program.write_text(NAIVE, encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sparsesmith.cli", *words, "--url", url]
        environment = {**os.environ, "PYTHONPATH": PATH}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    task = ("--task", "row_softmax", "--axes", "rows=64,cols=128")
    tuned = run("tune", *task, "--candidates", "5", "--out", "answer")
    assert tuned.returncode == 0, tuned.stderr
    assert "row_softmax float32, rows=64, cols=128" in tuned.stdout
    assert "the task's own program (thread_a_row)" in tuned.stdout
    assert sorted(path.suffix for path in (tmp_path / "answer").iterdir()) == [".cu", ".hpp", ".json", ".py"]
    graded = run("grade", "mine.cu", *task)
    assert graded.returncode == 0, graded.stderr
    refused = run("tune", *task, "matrix.mtx")
    assert (refused.returncode, refused.stderr.count("a matrix or --task: both are given")) == (2, 1)


REFUSED: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "an unknown task": ({"task": "row_softmx"}, 422, "task", "nearest: row_softmax"),
    "an axis that is missing": ({"axes": {"rows": 4}}, 422, "axes.cols", "has the axes rows, cols"),
    "an axis that is unknown": ({"axes": {**AXES, "depth": 3}}, 422, "axes.depth", "has no such axis"),
    "an axis of zero": ({"axes": {"rows": 0, "cols": 4}}, 422, "axes.rows", "greater than or equal to 1"),
    "an axis beyond memory": (
        {"axes": {"rows": 2**30, "cols": 2**10}},
        413,
        "axes",
        f"take {2**30 * 2**10 * 4 * 2} bytes, at most {64 * 2**30}",
    ),
    "a matrix as well": (
        {"matrix": {"num_rows": 1, "num_cols": 1, "row_indices": [0], "col_indices": [0]}},
        422,
        "task",
        "both given",
    ),
    "an operation as well": ({"operation": "spmv"}, 422, "task", "both given"),
    "a task that takes a matrix": ({"task": "spmv", "axes": {}}, 422, "task", "spmv takes a matrix"),
    "dense columns": ({"num_dense_cols": 8}, 422, "num_dense_cols", "no dense columns"),
    "fixed values": ({"values": "fixed"}, 422, "values", "no matrix"),
    "a task that is no name": ({"task": 7}, 422, "task", "expected a name"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_with_a_request_is_told_by_field_value_and_limit(url: str, what: str) -> None:
    changes, status, field, reason = REFUSED[what]
    response = post(url, **{"task": "row_softmax", "axes": AXES, **changes})
    problem = response.json()
    assert (response.status_code, problem["field"]) == (status, field)
    assert reason in problem["detail"]
    assert problem.get("limit")


def test_a_matrix_with_an_operation_that_takes_none_is_refused(url: str) -> None:
    matrix = {"num_rows": 1, "num_cols": 1, "row_indices": [0], "col_indices": [0]}
    problem = post(url, matrix=matrix, operation="row_softmax", axes=AXES).json()
    assert (problem["status"], problem["field"]) == (422, "operation")
    assert "row_softmax takes no matrix: send task and axes" in problem["detail"]


def test_samples_of_a_policy_are_not_to_be_had_for_a_task(url: str) -> None:
    state = post(url, task="row_softmax", axes=AXES, search="sample").json()["status"]
    assert state["state"] == "failed"
    assert "search=sample" in state["problem"]["detail"]
