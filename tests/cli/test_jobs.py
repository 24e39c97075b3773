"""Jobs and the server from the command line, against a real generator; the evaluators' outcomes are the test's."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from sparsesmith.client import Client
from sparsesmith.runtime.ports import free_port
from sparsesmith_proto.api import Cancelled, Finished, Graded, JobPage, JobStatus, Running, TuningOptions
from sparsesmith_proto.kernel import CompileFailed
from tests.artifacts.answers import CSR_PROGRAM, make_matrix
from tests.cli.shell import FAST, Shell, assert_one_line
from tests.client.test_clients import matrix_market, wait_until
from tests.generator.live_service import Evaluators


def submitted(shell: Shell, matrix: Path) -> str:
    """The id of a job that was handed in."""
    ended = shell("tune", matrix, *FAST, "--detach")
    assert (ended.code, ended.err) == (0, "")
    return ended.out.strip()


def test_a_job_handed_in_is_watched_to_its_answer(
    sparsesmith_command: Shell, server: str, matrix: Path, tmp_path: Path
) -> None:
    job_id = submitted(sparsesmith_command, matrix)
    watched = sparsesmith_command("watch", f"{server}/v1/kernels/{job_id}", "--out", tmp_path / "answer")
    assert watched.code == 0
    assert watched.out.startswith("verdict    a kernel, 2.00x faster")
    assert watched.out.count("wrote ") == len(list((tmp_path / "answer").iterdir())) == 4
    assert sparsesmith_command("status", job_id).out == f"{job_id}  finished\n"
    as_json = sparsesmith_command("status", f"/v1/kernels/{job_id}", "--json")
    assert isinstance(JobStatus.model_validate_json(as_json.out).status, Finished)


def test_watching_as_json_gives_each_state_on_a_line(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators
) -> None:
    evaluators.seconds = 3
    ended = sparsesmith_command("watch", submitted(sparsesmith_command, matrix), "--json")
    assert (ended.code, ended.err) == (0, "")
    states = [JobStatus.model_validate_json(line).status for line in ended.out.splitlines()]
    assert isinstance(states[-1], Finished)
    assert len(states) > 1
    assert all(before != after for before, after in pairwise(states))


def test_a_graded_program_is_watched_too(sparsesmith_command: Shell, server: str, evaluators: Evaluators) -> None:
    evaluators.outcome = CompileFailed(log="no such thing")
    with Client(server) as client:
        job = client.submit_program(CSR_PROGRAM, "m.mtx", matrix_market(make_matrix()))
    ended = sparsesmith_command("watch", job.job_id)
    assert ended.code == 0
    assert "outcome    does not compile:\nno such thing" in ended.out
    state = JobStatus.model_validate_json(sparsesmith_command("status", job.job_id, "--json").out).status
    assert isinstance(state, Graded)


def test_jobs_are_cancelled_once(sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    jobs = [submitted(sparsesmith_command, matrix) for _ in range(2)]
    with Client(server) as client:
        wait_until(lambda: isinstance(client.status(jobs[0]).status, Running))
        assert "graded 0 of 4" in sparsesmith_command("status", jobs[0]).out
        ended = sparsesmith_command("cancel", *jobs)
        assert (ended.code, ended.out) == (0, "".join(f"{job}  cancelled\n" for job in jobs))
        assert all(isinstance(client.status(job).status, Cancelled) for job in jobs)
        assert_one_line(sparsesmith_command("cancel", jobs[0]), "ended already")
        assert_one_line(sparsesmith_command("watch", jobs[0]), "was cancelled")
        third = client.submit("m.mtx", matrix_market(make_matrix()), TuningOptions()).job_id
    as_json = sparsesmith_command("cancel", third, "--json")
    assert isinstance(JobStatus.model_validate_json(as_json.out).status, Cancelled)
    evaluators.released.set()


def test_jobs_are_listed_the_newest_first_page_by_page(
    sparsesmith_command: Shell, server: str, matrix: Path, program: Path
) -> None:
    empty = sparsesmith_command("list")
    assert (empty.code, empty.out.count("\n")) == (0, 1)
    jobs = [submitted(sparsesmith_command, matrix) for _ in range(3)]
    sparsesmith_command("watch", jobs[2])
    sparsesmith_command("grade", program, matrix)
    newest = JobPage.model_validate_json(sparsesmith_command("list", "--limit", 2, "--json").out)
    assert [(job.kind, job.state) for job in newest.jobs] == [("evaluation", "graded"), ("kernel", "finished")]
    assert newest.jobs[1].best_speedup == 2
    assert newest.next_before == newest.jobs[1].job_id == jobs[2]
    older = sparsesmith_command("list", "--limit", 2, "--before", f"/v1/kernels/{jobs[2]}")
    assert [line.split()[0] for line in older.out.splitlines()[1:3]] == [jobs[1], jobs[0]]
    assert older.out.splitlines()[3] == f"older ones: sparsesmith list --before {jobs[0]}"
    last = JobPage.model_validate_json(sparsesmith_command("list", "--before", jobs[0], "--json").out)
    assert last == JobPage(jobs=(), next_before=None)
    assert_one_line(sparsesmith_command("list", "--before", "no-such-job"), "no-such-job")


def test_candidates_are_shown_with_what_became_of_them(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators
) -> None:
    evaluators.outcome = CompileFailed(log="line 3: [no] such thing\nand more")
    job_id = submitted(sparsesmith_command, matrix)
    sparsesmith_command("watch", job_id)
    shown = sparsesmith_command("candidates", job_id)
    title, *rows = shown.out.splitlines()
    assert (shown.code, title.split()[:3]) == (0, ["number", "s", "outcome"])
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]
    assert all("compile_failed" in row and row.endswith("line 3: [no] such thing") for row in rows)
    as_json = json.loads(sparsesmith_command("candidates", job_id, "--json").out)
    assert as_json[1]["outcome"] == evaluators.outcome.model_dump()
    text = sparsesmith_command("candidates", job_id, "--program", 1).out
    assert text == as_json[1]["program"] + "\n"
    assert_one_line(sparsesmith_command("candidates", job_id, "--program", 9), "no candidate 9")


@pytest.mark.parametrize("command", ["status", "watch", "cancel", "candidates"])
def test_a_job_that_is_not_there_is_one_line(command: str, sparsesmith_command: Shell, server: str) -> None:
    assert_one_line(sparsesmith_command(command, "no-such-job"), "no-such-job")


def test_health_tells_a_server_that_is_ready_from_none(sparsesmith_command: Shell, server: str) -> None:
    ready = sparsesmith_command("health")
    assert (ready.code, ready.out) == (0, f"{server}  ready\n")
    as_json = json.loads(sparsesmith_command("health", "--json").out)
    assert as_json == {"url": server, "is_alive": True, "is_ready": True, "problem": None}
    nobody = f"http://127.0.0.1:{free_port()}"
    away = sparsesmith_command("health", "--url", nobody)
    assert (away.code, away.err) == (4, "")
    assert away.out.startswith(f"{nobody}  no answer: ")


def test_the_doctor_names_what_is_here_and_what_to_do_about_what_is_not(
    sparsesmith_command: Shell, server: str
) -> None:
    here = sparsesmith_command("doctor")
    assert here.code == 0
    assert f"{server} ready" in here.out
    nobody = f"http://127.0.0.1:{free_port()}"
    away = sparsesmith_command("doctor", "--url", nobody, "--json")
    assert away.code == 4
    found = {finding["what"]: finding for finding in json.loads(away.out)}
    assert found["Python"]["found"].endswith(sys.executable)
    assert found["server"]["found"].startswith(f"{nobody} no answer")
    assert "make up" in found["server"]["advice"]
    assert bool(found["GPU"]["advice"]) == found["GPU"]["found"].startswith("none")


def test_headers_of_the_command_line_are_checked_before_anything_is_sent(
    sparsesmith_command: Shell, server: str
) -> None:
    assert sparsesmith_command("health", "-H", "Authorization: Bearer one", "--header", "X-Team: sparse").code == 0
    assert_one_line(sparsesmith_command("health", "--header", "Bearer one"), "no colon")
