"""The command line against a real generator on a real Valkey; the evaluators' outcomes are the test's."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import sparsesmith
from services.trainer.settings import TrainerSettings
from sparsesmith.artifacts import artifact, kinds_of
from sparsesmith.cli.commands import app
from sparsesmith.cli.rendering import describe_knobs, show_report
from sparsesmith.client import Client
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.runtime.ports import free_port
from sparsesmith_proto.api import Cancelled, EvaluationAnswer, KernelReport, KnobReport
from sparsesmith_proto.kernel import CompileFailed, Crashed
from tests.artifacts.answers import CSR_PROGRAM, make_device, make_matrix, make_report
from tests.cli.shell import FAST, Shell, assert_one_line, is_progress
from tests.generator.live_service import Evaluators

MATRIX = make_matrix()
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_tune_gives_the_verdict_first_and_the_program_last(
    sparsesmith_command: Shell, server: str, matrix: Path
) -> None:
    ended = sparsesmith_command("tune", matrix, *FAST)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].startswith(
        "verdict    a kernel, 2.00x faster than the library's fastest routine (cusparse_coo_alg1)"
    )
    assert lines[1].startswith("break-even repaid after ")
    program = next(number for number, line in enumerate(lines) if "//@ format" in line)
    before = "\n".join(lines[:program])
    for part in ("us measured", "4 candidates", "cusparse_coo_alg1"):
        assert part in before


def test_progress_is_told_where_the_output_is_no_terminal(
    sparsesmith_command: Shell, server: str, matrix: Path
) -> None:
    ended = sparsesmith_command("tune", matrix, *FAST)
    told = ended.err.splitlines()
    assert all(is_progress(line) for line in told)
    for part in ("sending the matrix", "of 4 candidates", "finished"):
        assert any(part in line for line in told), told


def test_json_is_all_that_is_printed(sparsesmith_command: Shell, server: str, matrix: Path, program: Path) -> None:
    tuned = sparsesmith_command("tune", matrix, *FAST, "--json")
    assert (tuned.code, tuned.err) == (0, "")
    assert KernelReport.model_validate_json(tuned.out).search.num_candidates == 4
    graded = sparsesmith_command("grade", program, matrix, "--json")
    assert (graded.code, graded.err) == (0, "")
    assert EvaluationAnswer.model_validate_json(graded.out).evaluation.candidate.program == CSR_PROGRAM


def test_options_reach_the_server(sparsesmith_command: Shell, server: str, matrix: Path) -> None:
    options = ("--operation", "spmm", "--num-dense-cols", "8", "--type", "float64", "--search", "families")
    report = json.loads(sparsesmith_command("tune", matrix, *FAST, *options, "--deterministic", "--json").out)
    workload = report["workload"]
    assert (workload["operation"], workload["num_dense_cols"], workload["element_type"]) == ("spmm", 8, "float64")
    assert workload["deterministic"] is True
    assert report["search"]["strategy"] == "families"


def test_another_order_is_asked_for_and_refused_where_nothing_could_use_it(
    sparsesmith_command: Shell, server: str, matrix: Path
) -> None:
    assert sparsesmith_command("tune", matrix, *FAST, "--reorder", "allowed").code == 0
    refused = sparsesmith_command("tune", matrix, *FAST, "--reorder", "allowed", "--operation", "sddmm")
    assert_one_line(refused, "reorder is allowed", "only for spmm, spmv", "leave it out")
    of_task = sparsesmith_command("tune", "--task", "copy", "--axes", "rows=8,cols=8", "--reorder", "allowed")
    assert_one_line(of_task, "reorder is allowed", "a task has no matrix")
    assert "'keep', 'allowed'" in sparsesmith_command("tune", matrix, "--reorder", "always").err


def test_a_kernel_before_the_search_is_shown_and_saved_and_the_search_goes_on(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators, tmp_path: Path
) -> None:
    evaluators.released.clear()
    out = tmp_path / "first"
    shown = sparsesmith_command("tune", matrix, *FAST, "--search", "instant", "--wait", "first", "--out", out)
    evaluators.released.set()
    assert shown.code == 0, shown.err
    assert "checked on one input, the full protocol follows and withdraws it if it fails" in shown.out
    assert "the search goes on" in shown.out
    assert sorted(path.suffix for path in out.iterdir()) == [".cu", ".json"]
    finished = sparsesmith_command("tune", matrix, *FAST, "--search", "instant")
    assert "confirmed" in finished.out


def test_fixed_values_are_asked_for_and_the_answer_says_what_it_is_valid_for(
    sparsesmith_command: Shell, server: str, matrix: Path, program: Path
) -> None:
    shown = sparsesmith_command("tune", matrix, *FAST, "--values", "fixed")
    assert "valid for this matrix's values only" in shown.out
    assert "valid for" not in sparsesmith_command("tune", matrix, *FAST).out
    graded = sparsesmith_command("grade", program, matrix, "--values", "fixed", "--json")
    assert EvaluationAnswer.model_validate_json(graded.out).workload.values is not None


def test_out_writes_the_files_of_the_answer(
    sparsesmith_command: Shell, server: str, matrix: Path, tmp_path: Path
) -> None:
    ended = sparsesmith_command("tune", matrix, *FAST, "--out", tmp_path / "new" / "folder", "--json")
    report = KernelReport.model_validate_json(ended.out)
    files = [artifact(kind, report, pattern_from_scipy(MATRIX)) for kind in kinds_of(report)]
    written = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == {file.filename: file.content for file in files}
    shown = sparsesmith_command("tune", matrix, *FAST, "--out", tmp_path / "new")
    assert shown.out.count("wrote ") == 4


def test_a_folder_that_cannot_be_made_is_told_before_the_search(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators
) -> None:
    ended = sparsesmith_command("tune", matrix, *FAST, "--out", matrix / "folder")
    assert_one_line(ended, "Not a directory")
    assert evaluators.jobs == {}


def test_the_library_is_named_where_nothing_beats_it(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators, tmp_path: Path
) -> None:
    evaluators.outcome = CompileFailed(log="no")
    ended = sparsesmith_command("tune", matrix, *FAST, "--out", tmp_path / "out")
    assert ended.code == 0
    assert "use the library's own routine cusparse_coo_alg1" in " ".join(ended.out.split())
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", ".py"]


def test_grade_exits_with_3_unless_the_program_passed(
    sparsesmith_command: Shell, server: str, matrix: Path, program: Path, evaluators: Evaluators
) -> None:
    passed = sparsesmith_command("grade", program, matrix)
    assert (passed.code, "outcome    passed on 5 inputs" in passed.out) == (0, True)
    evaluators.outcome = CompileFailed(log='p.cu(3): error: "[bold]" is [/undefined], index[k] \x1b[2J')
    failed = sparsesmith_command("grade", program, matrix)
    assert failed.code == 3
    assert '"[bold]" is [/undefined], index[k] \N{REPLACEMENT CHARACTER}[2J' in failed.out
    evaluators.outcome = Crashed(message="illegal address")
    as_json = sparsesmith_command("grade", program, matrix, "--json")
    assert as_json.code == 3
    assert EvaluationAnswer.model_validate_json(as_json.out).evaluation.outcome == evaluators.outcome


def test_grade_names_the_best_setting_of_the_knobs(
    sparsesmith_command: Shell, server: str, matrix: Path, evaluators: Evaluators
) -> None:
    tuned = EXAMPLES / "tuned_blocks.cu"
    graded = sparsesmith_command("grade", tuned, matrix, "--candidates", "5")
    assert (graded.code, "setting    BLOCK=64 LOAD=__ldg" in graded.out) == (0, True)
    assert "knobs      5 of 6 settings graded in" in graded.out
    told = EvaluationAnswer.model_validate_json(sparsesmith_command("grade", tuned, matrix, "--json").out)
    assert told.knobs is not None
    assert (told.knobs.num_settings, told.knobs.num_graded, told.knobs.outcomes) == (6, 6, {"passed": 6})


def test_settings_chosen_at_random_are_said_to_be() -> None:
    knobs = KnobReport(num_settings=6144, num_listed=4096, num_graded=2, outcomes={"passed": 2}, seconds=1.25)
    said = "2 of 4,096 settings, chosen at random from 6,144, graded in 1.2 s (2 passed)"
    assert describe_knobs(knobs) == said


def test_a_file_that_cannot_be_read_is_one_line(
    sparsesmith_command: Shell, matrix: Path, program: Path, tmp_path: Path
) -> None:
    missing = tmp_path / ("a long name " * 10 + "[bold].mtx")
    assert_one_line(sparsesmith_command("tune", missing), str(missing), "No such file")
    assert_one_line(sparsesmith_command("tune", tmp_path), str(tmp_path), "Is a directory")
    assert_one_line(sparsesmith_command("grade", missing, matrix), str(missing))
    program.write_bytes(b"//@ format csr\n\xff")
    assert_one_line(sparsesmith_command("grade", program, matrix), str(program), "not UTF-8 text: byte 15")


def test_no_server_is_one_line(sparsesmith_command: Shell, matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("SPARSESMITH_URL", address)
    for command in (("tune", matrix), ("policy",)):
        assert_one_line(sparsesmith_command(*command), address, "is `sparsesmith up` running?")
    assert_one_line(sparsesmith_command("policy", "--url", "nonsense"), "nonsense")


def test_what_the_server_refuses_is_one_line(
    sparsesmith_command: Shell, server: str, matrix: Path, tmp_path: Path
) -> None:
    assert_one_line(sparsesmith_command("policy"), "without a policy")
    assert_one_line(sparsesmith_command("tune", matrix, "--num-dense-cols", "3"), "num_dense_cols is 3", "spmv")
    assert_one_line(sparsesmith_command("tune", matrix, "--operation", "spgemm"), "spgemm")
    broken = tmp_path / "broken.mtx"
    broken.write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n3 1\n")
    assert_one_line(sparsesmith_command("tune", broken), "3")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--candidates", "0"), "budget.candidates"),
        (("--seconds", "1e9"), "budget.seconds"),
        (("--operation", "spmm", "--num-dense-cols", "5000"), "num_dense_cols"),
    ],
)
def test_an_option_out_of_range_is_one_line(
    options: tuple[str, ...], part: str, sparsesmith_command: Shell, matrix: Path
) -> None:
    assert_one_line(sparsesmith_command("tune", matrix, *options), part)


@pytest.mark.parametrize("options", [("--search", "luck"), ("--type", "float12"), ("--colour", "red")])
def test_an_unknown_option_value_is_a_usage_error(
    options: tuple[str, ...], sparsesmith_command: Shell, matrix: Path
) -> None:
    ended = sparsesmith_command("tune", matrix, *options)
    assert (ended.code, ended.out) == (2, "")
    assert options[0] in ended.err


def test_a_port_that_is_taken_is_one_line(sparsesmith_command: Shell, server: str, tmp_path: Path) -> None:
    port = server.rpartition(":")[2].strip("/")
    ended = sparsesmith_command("up", "--port", port, "--state", tmp_path)
    assert_one_line(ended, f"port {port} is taken", "--port")


def test_the_version_is_the_packages(sparsesmith_command: Shell) -> None:
    assert sparsesmith_command("--version").out == f"sparsesmith {sparsesmith.__version__}\n"


def test_every_command_is_listed(sparsesmith_command: Shell) -> None:
    ended = sparsesmith_command("--help")
    assert ended.code == 0
    asked = ("tune", "grade", "status", "watch", "list", "candidates", "cancel", "health", "policy")
    for command in (*asked, "up", "demo", "train"):
        assert f" {command} " in ended.out


@pytest.mark.parametrize(("command", "algorithm"), [("online", "rloo"), ("ppo", "ppo")])
def test_online_training_is_by_the_default_algorithm_or_by_ppo(
    command: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What becomes of the process reads its settings from the environment."""
    monkeypatch.setenv("SPARSESMITH_TRAINER_ALGORITHM", "rloo")
    started: list[tuple[list[str], str]] = []

    def become(path: str, words: list[str]) -> None:
        started.append((words[1:], TrainerSettings().algorithm))

    monkeypatch.setattr(os, "execv", become)
    app(["train", command, "--once"], standalone_mode=False)
    assert started == [(["-m", "services.trainer", "--once"], algorithm)]


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "file"])
def test_no_line_of_a_program_is_wrapped_or_cut(is_terminal: bool) -> None:
    long = CSR_PROGRAM + "// " + "a long comment " * 20 + "end\n"
    console = Console(width=80, force_terminal=is_terminal, color_system="truecolor" if is_terminal else None)
    with console.capture() as capture:
        show_report(console, make_report(MATRIX, long))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())
    assert shown.endswith(f"\n\n{long}")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that; not here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_cancels_the_search(server: str, matrix: Path, evaluators: Evaluators, interruptible: None) -> None:
    evaluators.released.clear()
    command = [sys.executable, "-m", "sparsesmith.cli", "tune", str(matrix), *FAST]
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(root / "proto")])
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, text=True)
    end = time.monotonic() + 30
    while not evaluators.jobs:
        assert time.monotonic() < end
        time.sleep(0.05)
    threading.Timer(0.3, process.send_signal, [signal.SIGINT]).start()
    assert process.wait(30) == 130
    job_id = next(iter(evaluators.jobs)).partition(".")[0]
    with Client(server) as client:
        assert isinstance(client.status(job_id).status, Cancelled)
    evaluators.released.set()


def test_without_a_gpu_every_time_is_called_an_estimate_and_the_stand_in_is_named() -> None:
    device = make_device().model_copy(update={"kind": "interpreter", "name": "PTX interpreter"})
    report = make_report(MATRIX, None).model_copy(update={"device": device})
    console = Console(width=200)
    with console.capture() as capture:
        show_report(console, report)
    assert capture.get().startswith("verdict    ESTIMATED, for no GPU is here: keep to the library")
    assert "without a GPU cusparse_csr_alg2 stands for it" in capture.get()
    assert "every time is ESTIMATED" in capture.get()


@pytest.mark.parametrize("kind, note", [("measured", ""), ("estimated", " (estimated)")])
@pytest.mark.parametrize("program", [CSR_PROGRAM, None], ids=["kernel", "library"])
def test_every_answer_says_when_it_is_repaid(program: str | None, kind: str, note: str) -> None:
    report = make_report(MATRIX, program)
    changes = {"kind": kind, "products_against_best": None, "products_against_default": 12_000}
    repaid = report.answer.break_even.model_copy(update=changes)
    answer = report.answer.model_copy(update={"break_even": repaid})
    console = Console(width=200)
    with console.capture() as capture:
        show_report(console, report.model_copy(update={"answer": answer}))
    said = "never repaid against the best baseline, repaid after 12,000 products against the default"
    assert f"{said}{note}; conversion 1.0 ms, tuning 1.0 s" in capture.get()
