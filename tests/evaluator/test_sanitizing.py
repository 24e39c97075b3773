"""compute-sanitizer as the last gate on winners: its reports read, its runs bounded, its word kept apart from silence.

The tool is an executable of these tests that runs the target as the tool does and then writes a report like the tool's
(`sanitizer_logs`); the target is ours, on a driver that keeps host memory. `tests/gpu/test_sanitizing.py` runs the
tool itself.
"""

import json
import math
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.evaluator.allowance import Allowance
from services.evaluator.candidates import Parsed, parse_candidate
from services.evaluator.checking.draws import draw, system_generator
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.isolation.built_formats import BuiltMatrices
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader
from services.evaluator.sanitizing.launch_plan import write_plan
from services.evaluator.sanitizing.sanitizer import TOOLS, Found, Sanitizer
from services.evaluator.sanitizing.tool_report import Fault, ToolReport, read_report
from services.evaluator.sanitizing.winners import MAX_REFUSED, Batch, WinnersGate
from sparsesmith.cuda.sanitizer import find_sanitizer
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    Crashed,
    Evaluation,
    Mismatch,
    Outcome,
    Passed,
    ToolCheck,
    UserWritten,
    Workload,
)
from tests.evaluator.misbehaving_device import BINARY, MisbehavingFactory
from tests.evaluator.misbehaving_device import program_text as behaving
from tests.generator.orders import make_pattern, make_workload
from tests.generator.reports import make_baselines, make_passed, make_report, make_timing

DEVICE_LIMITS = StageLimits(start_s=60, open_s=60, baselines_s=60, build_s=60, draw_s=60, check_s=60, time_s=60)
LOGS = Path(__file__).with_name("sanitizer_logs")
CLEAN: dict[str, str] = {tool: f"{tool}_clean.txt" for tool in TOOLS}
CHECKED = tuple(ToolCheck(tool=tool, state="clean") for tool in TOOLS)
CSR = "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, "
CSR += "const float* x, float* y"


def log(name: str) -> str:
    return (LOGS / name).read_text()


def program_text(kernel: str = "spmv", shared: int = 0) -> str:
    asked = f" shared={shared}" if shared else ""
    return (
        f"//@ format csr\n//@ launch {kernel} grid=ceil_div(num_rows,128) block=128{asked}\n"
        f'extern "C" __global__ void {kernel}({CSR}) {{ }}\n'
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("memcheck_clean.txt", ToolReport(0, (), ())),
        ("racecheck_clean.txt", ToolReport(0, (), ())),
        ("initcheck_clean.txt", ToolReport(0, (), ())),
        (
            "memcheck_write.txt",
            ToolReport(
                3,
                (Fault("Invalid __global__ write of size 4 bytes", (9,)),),
                ("Program hit unspecified launch failure (error 719) on CUDA API call to cuCtxSynchronize",),
            ),
        ),
        (
            "memcheck_read_of_an_older_release.txt",
            ToolReport(1, (Fault("Invalid __global__ read of size 4 bytes", (6,)),), ()),
        ),
        (
            "memcheck_without_lines.txt",
            ToolReport(1, (Fault("Invalid __shared__ read of size 16 bytes", ()),), ()),
        ),
        (
            "racecheck_race.txt",
            ToolReport(1, (Fault("Race reported between Write and Read access", (12, 14)),), ()),
        ),
        ("racecheck_warning.txt", ToolReport(0, (), ())),
        (
            "initcheck_read.txt",
            ToolReport(
                128,
                (
                    Fault("Uninitialized __global__ memory read of size 4 bytes", (17,)),
                    Fault("Uninitialized __global__ memory read of size 4 bytes", ()),
                ),
                (),
            ),
        ),
        (
            "no_device.txt",
            ToolReport(None, (), ("Error: Target application terminated before first instrumented API call",)),
        ),
        ("cut_off.txt", ToolReport(None, (), ())),
    ],
)
def test_what_the_tool_writes_is_read(name: str, expected: ToolReport) -> None:
    assert read_report(log(name)) == expected


@pytest.mark.parametrize("text", ["", "=========", "nothing of the tool's", "========= \n=========     at ", "\0" * 99])
def test_what_is_no_report_has_no_count_and_no_fault(text: str) -> None:
    report = read_report(text)
    assert (report.num_errors, report.faults) == (None, ())


def test_a_report_of_any_length_is_read_in_time() -> None:
    started = time.monotonic()
    hostile = "========= Invalid __global__ read\n=========     at k in " + "a:" * 2_000_000 + "\n"
    read_report(hostile + log("memcheck_write.txt") * 5000)
    assert time.monotonic() - started < 5


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a libcuda that keeps host memory."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("stub_driver.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


TOOL = """#!{python}
import json, pathlib, shutil, subprocess, sys, time
given = sys.argv[1:]
tool, log = given[given.index("--tool") + 1], given[given.index("--log-file") + 1]
target = given[given.index(sys.executable):]
here = pathlib.Path(__file__).parent
does = json.loads((here / "does.json").read_text())[tool]
with (here / "asked").open("a") as asked:
    asked.write(tool + "\\n")
ran = subprocess.run(target).returncode if does.get("runs", True) else 1
if does["log"]:
    shutil.copy(does["log"], log)
(here / f"{{tool}}.calls").write_bytes(pathlib.Path("calls").read_bytes() if pathlib.Path("calls").exists() else b"")
time.sleep(does.get("sleeps", 0))
sys.exit(ran)
"""


class Tool:
    """The executable in the place of compute-sanitizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = folder / "compute-sanitizer"
        self.command.write_text(TOOL.format(python=sys.executable))
        self.command.chmod(stat.S_IRWXU)
        self.does()

    def does(self, logs: Mapping[str, str] = {}, **others: Any) -> None:
        """Logs by tool, the clean one where none is named; `others`: the same of each."""
        named: Mapping[str, str] = CLEAN | dict(logs)
        does = {tool: {"log": str(LOGS / named[tool]), **others} for tool in TOOLS}
        (self.folder / "does.json").write_text(json.dumps(does))

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return sorted(path.read_text().split()) if path.exists() else []

    def calls(self, tool: str = "memcheck") -> list[str]:
        return (self.folder / f"{tool}.calls").read_text().splitlines()


@pytest.fixture
def tool(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    return Tool(tmp_path)


def plan_of(text: str, cubin: bytes = b"machine code\0") -> Callable[[Path], None]:
    pattern = make_pattern(300, 200)
    problem = Problem(make_workload(pattern), pattern)
    program = parsed(text, problem).program
    assert isinstance(program, KernelProgram), program
    layout = BuiltMatrices(problem).get(program).layout
    drawn = draw("mixed", problem, system_generator())
    return lambda folder: write_plan(folder, bind(program, layout, problem, 132), cubin, layout, drawn)


def parsed(text: str, problem: Problem) -> Parsed:
    return parse_candidate(Candidate(candidate_id="c", program=text, origin=UserWritten()), problem.workload)


def test_a_program_that_no_tool_finds_fault_with_is_clean_and_was_run_once_by_each(tool: Tool) -> None:
    assert Sanitizer(tool.command, 30).look(plan_of(program_text())) == CHECKED
    assert tool.asked == sorted(TOOLS)
    calls = tool.calls()
    assert calls[0] == "module machine code"
    assert calls[-1] == "launch spmv (3,1,1) (128,1,1) 0, first argument 300"
    nnz = make_pattern(300, 200).nnz
    assert [line for line in calls if line.startswith("alloc")] == [
        f"alloc {4 * count}" for count in (301, nnz, nnz, 200, 300)
    ]
    assert [line for line in calls if line.startswith("copy")] == [f"copy {4 * n}" for n in (301, nnz, nnz, 200)]


def test_a_launch_with_much_shared_memory_asks_for_it(tool: Tool) -> None:
    assert Sanitizer(tool.command, 30).look(plan_of(program_text(shared=65536))) == CHECKED
    assert "attribute spmv 8 65536" in tool.calls()


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (
            {"memcheck": "memcheck_write.txt"},
            Found("memcheck", Fault("Invalid __global__ write of size 4 bytes", (9,)), 3),
        ),
        (
            {"racecheck": "racecheck_race.txt"},
            Found("racecheck", Fault("Race reported between Write and Read access", (12, 14)), 1),
        ),
        (
            {"initcheck": "initcheck_read.txt"},
            Found("initcheck", Fault("Uninitialized __global__ memory read of size 4 bytes", (17,)), 128),
        ),
    ],
)
def test_an_error_is_told_with_its_tool_kind_and_line(tool: Tool, logs: dict[str, str], expected: Found) -> None:
    tool.does(logs)
    assert Sanitizer(tool.command, 30).look(plan_of(program_text())) == expected


def test_a_warning_of_racecheck_is_no_error(tool: Tool) -> None:
    tool.does({"racecheck": "racecheck_warning.txt"})
    assert Sanitizer(tool.command, 30).look(plan_of(program_text())) == CHECKED


def reasons(said: tuple[ToolCheck, ...] | Found) -> set[tuple[str, str]]:
    assert not isinstance(said, Found), said
    return {(check.state, check.reason) for check in said}


def test_what_does_not_end_in_time_was_not_checked_and_is_killed(tool: Tool) -> None:
    tool.does(sleeps=60)
    started = time.monotonic()
    said = Sanitizer(tool.command, 1.5).look(plan_of(program_text()))
    assert reasons(said) == {("not_checked", "it did not end within 1.5 s")}
    assert time.monotonic() - started < 10
    assert not [each for each in running() if str(tool.command) in each]


def running() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_an_error_that_was_told_before_the_limit_counts(tool: Tool) -> None:
    tool.does({"memcheck": "memcheck_write.txt"}, sleeps=60)
    found = Sanitizer(tool.command, 3).look(plan_of(program_text()))
    assert isinstance(found, Found)
    assert found.tool == "memcheck"


def test_a_tool_that_comes_to_no_summary_has_not_checked(tool: Tool) -> None:
    tool.does(dict.fromkeys(TOOLS, "no_device.txt"))
    said = Sanitizer(tool.command, 30).look(plan_of(program_text()))
    expected = "Error: Target application terminated before first instrumented API call"
    assert reasons(said) == {("not_checked", expected)}


def test_a_summary_without_errors_of_a_program_that_did_not_run_is_not_clean(tool: Tool) -> None:
    tool.does(runs=False)
    assert reasons(Sanitizer(tool.command, 30).look(plan_of(program_text()))) == {("not_checked", "it ended with 1")}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("fails", "launch: cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED"),
        ("missing", "launch: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"),
    ],
)
def test_a_program_whose_launch_fails_is_not_clean_whatever_the_tool_says(tool: Tool, kernel: str, reason: str) -> None:
    assert reasons(Sanitizer(tool.command, 30).look(plan_of(program_text(kernel)))) == {("not_checked", reason)}


def test_the_target_sees_one_gpu_and_nothing_of_our_environment(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSESMITH_REDIS_URL", "redis://:secret@host")
    shown = tool.folder / "shown"
    shows = f"import os, pathlib; pathlib.Path({str(shown)!r}).write_text(repr(dict(os.environ)))"
    tool.command.write_text(tool.command.read_text() + "\n")
    text = tool.command.read_text().replace("given = sys.argv", f"{shows}\ngiven = sys.argv", 1)
    tool.command.write_text(text)
    Sanitizer(tool.command, 30, "3").look(plan_of(program_text()))
    environment = eval(shown.read_text())
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert not [name for name in environment if name.startswith("SPARSESMITH")]
    assert environment["HOME"] != os.environ.get("HOME")


TEXTS = [program_text(f"spmv{number}") for number in range(MAX_REFUSED + 3)]


class Graded:
    """A batch whose programs passed, with their times."""

    def __init__(self, *medians_us: float, earlier: Mapping[str, Outcome] = {}) -> None:
        pattern = make_pattern(300, 200)
        self.problem = Problem(make_workload(pattern), pattern)
        self.candidates = [parsed(text, self.problem) for text in TEXTS[: len(medians_us)]]
        passed = [make_passed(make_timing(median_us)) for median_us in medians_us]
        self.known: dict[str, Outcome] = {**earlier, **dict(zip(TEXTS, passed, strict=False))}
        self.report: EvaluationReport = make_report([], make_baselines(make_timing(10), make_timing(20))).model_copy(
            update={"evaluations": tuple(map(self._evaluation, self.candidates))}
        )

    def _evaluation(self, each: Parsed) -> Evaluation:
        return Evaluation(candidate=each.candidate, outcome=self.known[each.candidate.program])

    def judged(self, tool: Tool, budget_s: float = math.inf) -> list[Outcome]:
        ends = time.monotonic() + budget_s
        binary = replace(BINARY, cubin=b"machine code\0")
        batch = Batch(self.problem, self.candidates, lambda program: binary, self.known, Allowance(budget_s, ends))
        report = WinnersGate(Sanitizer(tool.command, 30)).judged(self.report, batch)
        return [each.outcome for each in report.evaluations]


def test_the_fastest_of_a_search_is_looked_at_and_no_other(tool: Tool) -> None:
    slower, fastest = Graded(7, 5).judged(tool)
    assert isinstance(slower, Passed) and isinstance(fastest, Passed)
    assert (slower.sanitized, fastest.sanitized) == ((), CHECKED)
    assert len(tool.asked) == 3


def test_what_does_not_beat_the_library_or_the_search_s_best_is_not_looked_at(tool: Tool) -> None:
    best = make_passed(make_timing(4)).model_copy(update={"sanitized": CHECKED})
    for graded in (Graded(11), Graded(7, earlier={"an earlier text": best})):
        before = [each.outcome for each in graded.report.evaluations]
        assert graded.judged(tool) == before
    assert tool.asked == []


@pytest.mark.parametrize(
    ("logs", "outcome", "message"),
    [
        (
            {"memcheck": "memcheck_write.txt"},
            Crashed,
            "compute-sanitizer, memcheck: Invalid __global__ write of size 4 bytes, line 9 (one of 3 errors)",
        ),
        (
            {"racecheck": "racecheck_race.txt"},
            Mismatch,
            "compute-sanitizer, racecheck: Race reported between Write and Read access, lines 12 and 14",
        ),
        (
            {"initcheck": "initcheck_read.txt"},
            Crashed,
            "compute-sanitizer, initcheck: Uninitialized __global__ memory read of size 4 bytes, line 17 "
            "(one of 128 errors)",
        ),
    ],
)
def test_a_winner_with_an_error_is_refused_and_the_search_knows(
    tool: Tool, logs: dict[str, str], outcome: type[Outcome], message: str
) -> None:
    tool.does(logs)
    graded = Graded(5)
    (refused,) = graded.judged(tool)
    assert isinstance(refused, Crashed | Mismatch) and isinstance(refused, outcome)
    assert refused.message == message
    assert graded.known[TEXTS[0]] == refused


def test_the_next_in_line_is_looked_at_until_too_many_were_refused(tool: Tool) -> None:
    tool.does({"memcheck": "memcheck_write.txt"})
    outcomes = Graded(*range(1, MAX_REFUSED + 3)).judged(tool)
    assert [each.outcome for each in outcomes] == ["crashed"] * MAX_REFUSED + ["passed"] * 2
    last, other = outcomes[MAX_REFUSED:]
    assert isinstance(last, Passed) and isinstance(other, Passed)
    assert reasons(last.sanitized) == {("not_checked", "4 faster programs of the batch were refused before it")}
    assert other.sanitized == ()


def test_without_time_a_winner_was_not_checked(tool: Tool) -> None:
    (winner,) = Graded(5).judged(tool, budget_s=0)
    assert isinstance(winner, Passed)
    assert reasons(winner.sanitized) == {("not_checked", "the job's budget was spent")}
    assert tool.asked == []


def test_a_command_that_cannot_be_run_has_not_checked(tool: Tool) -> None:
    tool.command.write_text("no program of this machine")
    (winner,) = Graded(5).judged(tool)
    assert isinstance(winner, Passed)
    ((state, reason),) = reasons(winner.sanitized)
    assert state == "not_checked"
    assert "it could not be run" in reason


class Held:
    """The one matrix that a grader may ask for."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def problem(self, workload: Workload) -> Problem:
        return self._problem


def test_a_grader_reports_what_the_gate_says_and_grades_no_text_of_a_search_again(tool: Tool) -> None:
    pattern = make_pattern(20, 20, 0.2)
    problem = Problem(make_workload(pattern), pattern)
    texts = [behaving("right 7"), behaving("right 5")]
    candidates = tuple(
        Candidate(candidate_id=f"c{number}", program=text, origin=UserWritten()) for number, text in enumerate(texts)
    )
    process = DeviceProcess(MisbehavingFactory(), DEVICE_LIMITS)
    try:
        with Compiler(1, timeout_s=120) as compiler:
            grader = Grader(process, compiler)
            grader.look_last(WinnersGate(Sanitizer(tool.command, 30)))
            job = EvaluationJob(job_id="a", workload=problem.workload, candidates=candidates, search="one")
            slower, fastest = (each.outcome for each in grader.grade(job, Held(problem)).evaluations)
            assert isinstance(slower, Passed) and isinstance(fastest, Passed)
            assert (slower.sanitized, fastest.sanitized) == ((), CHECKED)
            asked = len(tool.asked)
            again = grader.grade(job.model_copy(update={"job_id": "b"}), Held(problem))
            assert [each.outcome for each in again.evaluations] == [slower, fastest]
            assert len(tool.asked) == asked
            listed = job.model_copy(update={"job_id": "l", "search": None, "listings": True})
            grader.grade(listed, Held(problem))
            assert len(tool.asked) == asked, "nobody is handed what is only listed"
            tool.does({"memcheck": "memcheck_write.txt"})
            other = job.model_copy(update={"job_id": "c", "search": "two", "candidates": candidates[:1]})
            (refused,) = grader.grade(other, Held(problem)).evaluations
            assert isinstance(refused.outcome, Crashed)
            assert "memcheck: Invalid __global__ write of size 4 bytes, line 9" in refused.outcome.message
    finally:
        process.close()


def test_the_command_is_found_on_the_path_or_in_a_toolkit(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tool.folder))
    assert find_sanitizer() == tool.command
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    (tmp_path / "toolkit" / "bin").mkdir(parents=True)
    shutil.copy(tool.command, tmp_path / "toolkit" / "bin")
    assert find_sanitizer() == tmp_path / "toolkit" / "bin" / "compute-sanitizer"
