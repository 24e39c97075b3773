"""For those who write kernel programs: a start of every format, grading without a server, the tutorial as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from sparsesmith.errors import InvalidOption, InvalidProgram
from sparsesmith.program.program import parse_program
from sparsesmith.program.starting import starting_formats, starting_program
from sparsesmith_proto.api import EvaluationAnswer
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Passed
from sparsesmith_proto.message import ElementType
from tests.cli.shell import Shell, assert_one_line
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload

ROOT = Path(__file__).resolve().parents[2]
MESH = ROOT / "examples" / "jagmesh7.mtx"
LIMITS = StageLimits(start_s=300, check_s=60, time_s=60)
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
every_type = pytest.mark.parametrize("element_type", ["float32", "float64"])


@every_type
@pytest.mark.parametrize(
    ("operation", "name"), [(operation, name) for operation in ("spmv", "spmm") for name in starting_formats(operation)]
)
def test_a_starting_program_keeps_the_contract(operation: str, name: str, element_type: ElementType) -> None:
    program = parse_program(starting_program(name, operation, element_type), operation, element_type)
    assert program.format.name == name


@pytest.mark.timeout(900)
@every_type
def test_every_starting_program_is_right(element_type: ElementType) -> None:
    pattern = make_pattern(70, 70, 0.08)
    candidates = tuple(
        make_candidate(starting_program(name, "spmv", element_type), name) for name in starting_formats("spmv")
    )
    job = EvaluationJob(
        job_id="j", workload=make_workload(pattern, "spmv", element_type), candidates=candidates, budget_s=600
    )
    process = DeviceProcess(InterpreterFactory("sm_90"), LIMITS)
    with Compiler(1, timeout_s=120) as compiler:
        report = Grader(process, compiler).grade(job, HeldMatrix(pattern, None))
    process.close()
    failed = {
        each.candidate.candidate_id: each.outcome for each in report.evaluations if not isinstance(each.outcome, Passed)
    }
    assert failed == {}
    assert len(report.evaluations) == 11


def test_a_format_without_a_start_and_an_unknown_one_are_told_apart() -> None:
    with pytest.raises(InvalidOption, match=r"no starting program of format panels for spmv \(there are: bsell, bsr"):
        starting_program("panels", "spmv", "float32")
    with pytest.raises(InvalidProgram, match="unknown format 'csx'"):
        starting_program("csx", "spmv", "float32")


def test_a_new_kernel_is_written_once(
    sparsesmith_command: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sparsesmith_command("new-kernel", "ell", "--type", "float64").code == 0
    assert (tmp_path / "ell.cu").read_text() == starting_program("ell", "spmv", "float64")
    assert_one_line(sparsesmith_command("new-kernel", "ell"), "ell.cu is there already", "--out")
    assert_one_line(sparsesmith_command("new-kernel", "csx"), "unknown format 'csx'")


def test_a_wrong_question_is_one_line(sparsesmith_command: Shell, tmp_path: Path) -> None:
    program = tmp_path / "p.cu"
    program.write_text(starting_program("csr", "spmv", "float32"))
    assert_one_line(sparsesmith_command("check", program, ROOT / "README.md"), "expected .mtx, .mtx.gz or .npz")
    assert_one_line(sparsesmith_command("check", tmp_path / "none.cu", MESH), "none.cu")
    assert_one_line(sparsesmith_command("check", program, MESH, "--values", "fixed"), "values=fixed")


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shim = tmp_path / "bin" / "sparsesmith"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparsesmith.cli "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
    }
    steps = re.findall(r"^```sh\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    script = "\necho =====\n".join(steps)
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    start, scalar, lanes, wrong = run.stdout.split("=====")
    assert starting_program("csr", "spmv", "float32") in start
    assert "passed on 5 inputs" in scalar
    assert "passed on 5 inputs" in lanes
    assert "exit code 3" in wrong
    assert "crashed" in wrong or "mismatch" in wrong


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_a_check_answers_as_a_server_does(
    sparsesmith_command: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSESMITH_EVALUATOR_DEVICE", "interpreter")
    program = tmp_path / "p.cu"
    program.write_text(starting_program("csr", "spmm", "float64"))
    words = ("--operation", "spmm", "--num-dense-cols", "4", "--type", "float64", "--json")
    ended = sparsesmith_command("check", program, MESH, *words)
    assert ended.code == 0, ended.err
    answer = EvaluationAnswer.model_validate_json(ended.out)
    assert isinstance(answer.evaluation.outcome, Passed)
    assert (answer.workload.operation, answer.workload.num_dense_cols) == ("spmm", 4)
    assert answer.device.kind == "interpreter"
