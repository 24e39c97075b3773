"""Problems of other suites become tasks; what is wrong with them is named; what they run cannot reach anything."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from services.evaluator.references.client import ReferenceLimits, ReferenceProcess
from services.evaluator.references.importing import ImportOptions, import_task, is_right
from sparsesmith.errors import InvalidInput, InvalidOption, SparsesmithError, Unavailable
from sparsesmith.operations import check_axes, operation_named, operations
from sparsesmith.operations.imported.card import Card
from sparsesmith.operations.imported.folder import VARIABLE, read_task
from sparsesmith.operations.imported.references import installed
from tests.evaluator.references.problems import (
    DEPTHWISE,
    MATMUL,
    SCALED,
    TRIPLES,
    definition,
    forward,
    workload,
    written_definition,
)

Import = Callable[..., Card]


@pytest.fixture(scope="module")
def references() -> Iterator[ReferenceProcess]:
    with ReferenceProcess(ReferenceLimits(seconds=20)) as process:
        yield process


@pytest.fixture
def imported(references: ReferenceProcess, tmp_path: Path) -> Import:
    def make(text: str, name: str = "", **constants: int) -> Card:
        path = tmp_path / "7_Some_problem.py"
        path.write_text(text)
        return import_task(path, tmp_path / "tasks", ImportOptions(name, constants), references)

    return make


def test_a_kernelbench_problem_becomes_a_task_whose_weights_are_inputs(
    imported: Import, references: ReferenceProcess, tmp_path: Path
) -> None:
    card = imported(SCALED, rows=6)
    told = {each.name: (each.role, [card.fixed[axis] for axis in each.axes], each.given) for each in card.operands}
    assert card.name == "kb_7_some_problem"
    assert told == {
        "x": ("input", [6, 5], "float32"),
        "scale": ("input", [], "float32"),
        "keep": ("input", [6, 5], "bool"),
        "weight": ("input", [5], "float32"),
        "y": ("output", [6], "float32"),
    }
    assert card.kinds == ("given", "scaled", "centred")
    folder = tmp_path / "tasks" / card.name
    inputs = references.draw(folder, card, "scaled", card.fixed, 5)
    answer = references.answer(folder, card, card.fixed, inputs)
    by_hand = (np.float64(inputs["scale"]) * inputs["x"].astype(np.float64) * inputs["weight"] * inputs["keep"]).sum(1)
    np.testing.assert_allclose(answer.results["y"].wide, by_hand, rtol=1e-14)
    assert not np.array_equal(inputs["weight"], np.ones(5))
    assert 3 <= answer.num_terms <= 11


def test_questions_of_several_threads_get_their_own_answers(
    imported: Import, references: ReferenceProcess, tmp_path: Path
) -> None:
    card = imported(SCALED, rows=600)
    folder = tmp_path / "tasks" / card.name

    def asked(seed: int) -> tuple[bytes, bool]:
        inputs = references.draw(folder, card, "given", card.fixed, seed)
        wide = references.answer(folder, card, card.fixed, inputs).results["y"].wide
        sums = np.float64(inputs["scale"]) * inputs["x"].astype(np.float64) * inputs["weight"] * inputs["keep"]
        return inputs["x"].tobytes(), np.allclose(wide, sums.sum(1), rtol=1e-12)

    one_by_one = [asked(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(asked, range(12))) == one_by_one
    assert len({inputs for inputs, _ in one_by_one}) == 12
    assert all(is_sum for _, is_sum in one_by_one)


def test_a_way_of_torchs_that_loses_more_is_right_and_half_precision_is_not(
    imported: Import, references: ReferenceProcess, tmp_path: Path
) -> None:
    """A depthwise convolution by transforms is off by tens of times what the usual one loses."""
    card = imported(DEPTHWISE)
    assert 2 < card.allowance < 100
    assert card.flags == ()
    folder = tmp_path / "tasks" / card.name
    for kind in card.kinds:
        inputs = references.draw(folder, card, kind, card.fixed, 11)
        answer = references.answer(folder, card, card.fixed, inputs)
        other = references.otherwise(folder, card, card.fixed, inputs)
        assert is_right(card, answer, other)
        assert not is_right(card.model_copy(update={"allowance": 1.0}), answer, other)
        halved = {name: array.astype(np.float16).astype(np.float64) for name, array in other.items()}
        assert not is_right(card, answer, halved)
    assert imported(forward("x = 2 * x"), "doubled").allowance == 1


def test_a_problem_that_is_a_task_of_ours_has_its_names_and_programs(imported: Import, tmp_path: Path) -> None:
    card = imported(MATMUL.replace("M, K, N = 7, 11, 13", "M = 7\nK = 11\nN = 13"), "product", N=12)
    task = read_task(tmp_path / "tasks" / "product")
    assert (card.solves, dict(card.fixed)) == ("matmul", {"m": 7, "k": 11, "n": 12})
    assert task.programs["naive"].startswith("//@ task product\n")
    assert [(each.name, each.axes) for each in task.operands][-1] == ("c", ("m", "n"))


def test_a_task_that_would_need_far_more_memory_than_its_operands_is_not_compared(imported: Import) -> None:
    assert not imported(TRIPLES, "triples").solves  # As attention of one head: scores of 720 GB.


REFUSED = {
    "one that raises": (forward("raise ValueError('no such luck')"), "ValueError: no such luck"),
    "one that draws in its model": (forward("x = x + torch.rand(3, 4)"), "is not deterministic"),
    "one that returns words": (forward("x = 'four'"), "returns str"),
    "two floating types": (forward("x = (x, x.half())"), "its arrays are float16 and float32"),
    "no Model": ("def get_inputs(): return []\ndef get_init_inputs(): return []", "the module has no Model"),
    "no Python": ("class Model(:", "SyntaxError"),
    "one that ends its process": (forward("import os; os._exit(3)"), "it ended its process"),
    "one that takes all memory": (forward("torch.ones(1 << 40)"), "memory"),
    "one that opens a connection": (forward("import socket; socket.socket()"), "PermissionError"),
    "one that starts a process": (forward("import os; os.fork()"), "PermissionError"),
    "one that writes a file": (forward("open('/tmp/sparsesmith-reference', 'w')"), "PermissionError"),
    "one that reads another's files": (forward(f"open({str(Path(__file__))!r})"), "PermissionError"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_with_a_reference_is_named_and_leaves_nothing_behind(
    imported: Import, tmp_path: Path, what: str
) -> None:
    text, reason = REFUSED[what]
    with pytest.raises(SparsesmithError, match=reason):
        imported(text)
    assert not list((tmp_path / "tasks").glob("*"))


def test_a_size_that_a_module_does_not_name_is_refused_with_those_that_it_does(imported: Import) -> None:
    with pytest.raises(InvalidInput, match="set depth: the module assigns rows, features") as caught:
        imported(SCALED, depth=3)
    assert caught.value.field == "set"


@pytest.mark.parametrize(("name", "reason"), [("Plus", "name: Plus: lower-case"), ("dot", "there is an operation dot")])
def test_a_name_that_no_task_can_have_is_refused(imported: Import, name: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        imported(forward("pass", result="x + 1"), name)


def test_a_program_for_another_task_is_refused(references: ReferenceProcess, tmp_path: Path) -> None:
    path = tmp_path / "plus.py"
    path.write_text(forward("pass", result="x + 1"))
    options = ImportOptions("plus", {}, "//@ task minus\n")
    with pytest.raises(InvalidOption, match="`//@ task plus` is needed"):
        import_task(path, tmp_path / "tasks", options, references)


def test_a_reference_that_does_not_end_is_ended_and_the_next_one_answers(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(forward("import time; time.sleep(60)"))
    with ReferenceProcess(ReferenceLimits(seconds=6)) as references:
        with pytest.raises(InvalidInput, match="it did not end within 6 s"):
            import_task(path, tmp_path / "tasks", ImportOptions(), references)
        path.write_text(forward("pass", result="x + 1"))
        assert import_task(path, tmp_path / "tasks", ImportOptions(), references).flags == ()


def test_a_result_that_hardly_depends_on_the_input_is_flagged(imported: Import) -> None:
    flags = " ".join(imported(forward("x = torch.ones(3, 4) + 1e-6 * x")).flags)
    assert "spread: " in flags and "axes: y hardly changes along 0, 1" in flags and "input: " in flags


def test_a_definition_becomes_a_task_with_axes(references: ReferenceProcess, tmp_path: Path) -> None:
    path = written_definition(tmp_path, definition(), workload(), workload(axes={"Batch": 700}))
    card = import_task(path, tmp_path / "tasks", ImportOptions(), references)
    task = read_task(tmp_path / "tasks" / card.name)
    assert (task.axes, dict(card.fixed), card.trial) == (("batch",), {"hidden": 5}, {"batch": 9})
    assert [dict(axes) for axes in task.published] == [{"batch": 9}, {"batch": 700}]
    assert card.flags == ("constraint left out: len(x) > 2",)
    check_axes(task, 1, {"batch": 999})
    with pytest.raises(InvalidOption, match="needs batch < 1000"):
        check_axes(task, 1, {"batch": 1000})
    inputs = references.draw(task.folder, card, "given", {"batch": 4}, 1)
    wide = inputs["x"].astype(np.float64)
    result = references.answer(task.folder, card, {"batch": 4}, inputs).results["y"]
    right = wide / np.sqrt((wide**2).mean(1, keepdims=True) + np.float64(np.float32(1e-6)))
    np.testing.assert_allclose(result.wide, right, rtol=1e-14)  # float64, though it casts to float32
    assert 0 < np.abs(result.own - right).max() < 1e-6


WRONG_DEFINITIONS = {
    "an unknown field": (definition(tolerance=0.1), "tolerance: Extra inputs are not permitted"),
    "an axis that there is not": (
        definition(outputs={"y": {"shape": ["Rows"], "dtype": "float32"}}),
        r"y\.shape: no axis Rows \(Batch, Hidden\)",
    ),
    "a type that kernels do not get": (
        definition(outputs={"y": {"shape": ["Batch"], "dtype": "float8_e4m3fn"}}),
        r"outputs\.y\.dtype is float8_e4m3fn, taken: float32",
    ),
    "no function": (definition(reference="ran = 1"), "there is no function `run`"),
    "another shape": (
        definition(outputs={"y": {"shape": ["Batch"], "dtype": "float32"}}),
        r"has y in the shape \(7, 5\), needed: \(7,\)",
    ),
}


@pytest.mark.parametrize("what", WRONG_DEFINITIONS)
def test_what_is_wrong_with_a_definition_is_named(references: ReferenceProcess, tmp_path: Path, what: str) -> None:
    told, reason = WRONG_DEFINITIONS[what]
    with pytest.raises(SparsesmithError, match=reason):
        import_task(written_definition(tmp_path, told), tmp_path / "tasks", ImportOptions(), references)


def test_arrays_from_files_are_refused_by_name(references: ReferenceProcess, tmp_path: Path) -> None:
    of_file = workload(inputs={"x": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}})
    path = written_definition(tmp_path, definition(), of_file)
    with pytest.raises(InvalidInput, match=r"inputs\.x: arrays from files are not taken"):
        import_task(path, tmp_path / "tasks", ImportOptions(), references)


def test_a_posted_task_is_not_run_unless_the_evaluator_says_so(
    imported: Import, references: ReferenceProcess, tmp_path: Path
) -> None:
    card = imported(forward("pass", result="x + 1")).model_copy(update={"posted": True})
    with pytest.raises(InvalidInput, match="SPARSESMITH_EVALUATOR_POSTED_TASKS"):
        references.draw(tmp_path / "tasks" / card.name, card, "given", card.fixed, 1)


def test_no_reference_runs_in_a_process_that_is_no_evaluator(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(forward("pass", result="x + 1"), "plus_one")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tasks"))
    operations.cache_clear()
    try:
        assert operation_named("plus_one").name == "plus_one"
        with pytest.raises(Unavailable, match="run by an evaluator alone"):
            installed()
    finally:
        monkeypatch.delenv(VARIABLE)
        operations.cache_clear()


GRADED = """
import sys
from contextlib import closing
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.operations import Problem, operation_named
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, UserWritten, Workload

class Tasks:
    def problem(self, workload):
        return Problem(workload)

text = operation_named("product").programs["naive"].replace("T ", "float ").replace("T*", "float*")
texts = [text, text.replace("i < k", "i < k - 1")]
if __name__ == "__main__":
    settings = EvaluatorSettings(device="interpreter")
    with closing(device_process(settings)) as process, Compiler(1, timeout_s=120) as compiler:
        workload = Workload(operation="product", element_type="float32")
        candidates = tuple(
            Candidate(candidate_id=str(n), program=each, origin=UserWritten()) for n, each in enumerate(texts)
        )
        job = EvaluationJob(job_id="imported", workload=workload, candidates=candidates)
        report = Grader(process, compiler).grade(job, Tasks())
        print(process.is_confined, *(each.outcome.outcome for each in report.evaluations))
"""


@pytest.mark.timeout(600)
def test_programs_for_an_imported_task_are_graded_by_a_confined_evaluator(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(MATMUL, "product")
    script = tmp_path / "graded.py"
    script.write_text(GRADED)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tasks"))
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root / 'proto'}")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["True", "passed", "mismatch"], run.stderr[-2000:]


def test_the_card_is_what_the_command_prints(tmp_path: Path) -> None:
    path = tmp_path / "5_Plus_one.py"
    path.write_text(forward("pass", result="x + 1"))
    words = ["-m", "services.evaluator.references", str(path), "--into", str(tmp_path / "tasks")]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["folder"] == str(tmp_path / "tasks" / "kb_5_plus_one")
    again = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
