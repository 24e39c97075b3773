"""Answers to imported tasks go back to their suites' evaluators, which are not here: what they are given, and what is
made of what they say."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.judging.suite_evaluators import asked_flashinfer, asked_kernelbench, suite_workload
from benchmarks.judging.suites import judged, sides_of, told
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.references.client import ReferenceLimits, ReferenceProcess
from services.evaluator.references.importing import ImportOptions, import_task
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.artifacts.exports import exported_program
from sparsesmith.operations import Problem, operations
from sparsesmith.operations.imported.card import Card
from sparsesmith.operations.imported.folder import DEFINITION, VARIABLE, imported_tasks
from sparsesmith_proto.kernel import DeviceDescription, Workload
from tests.evaluator.references.problems import NORM, SCALED, WEIGHTED, definition, workload, written_definition

EVALUATOR = '''
"""Of our own writing, with the signature of KernelBench's: runs both on the CPU."""
import torch
from openai import OpenAI


class Result:
    def __init__(self, correctness, metadata):
        self.compiled, self.correctness, self.metadata = True, correctness, metadata
        self.runtime, self.ref_runtime = 0.25, 0.5


def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials=1, num_perf_trials=10,
        measure_performance=False, build_dir=None, device=None):
    context = {}
    exec(original_model_src, context)
    Model, get_inputs = context["Model"], context["get_inputs"]
    exec(custom_model_src, context)
    given = get_inputs()
    right, found = Model()(*given), context["ModelNew"]()(*given)
    return Result(torch.allclose(right, found, 1e-4, 1e-4), {"difference": (right - found).abs().max()})
'''
PLAIN = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(3, 4)]

def get_init_inputs():
    return []
"""
DEVICE = DeviceDescription(
    kind="cuda", name="a GPU", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4000.0, versions={}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One imported task of each suite."""
    path = tmp_path_factory.mktemp("suites")
    (path / "weighted.py").write_text(SCALED)
    norm = written_definition(path, definition(), workload())
    of_model = ImportOptions("weighted", {"rows": 6}, WEIGHTED)
    with ReferenceProcess(ReferenceLimits()) as references:
        import_task(path / "weighted.py", path / "tasks", of_model, references)
        import_task(norm, path / "tasks", ImportOptions(program=NORM), references)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(path / "tasks"))
        operations.cache_clear()
        yield path / "tasks"
    operations.cache_clear()


def test_each_imported_task_is_tuned_and_exported(folder: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(candidates=2, seconds=30.0, exports=tmp_path / "exports", kernelbench=None)
    with (
        closing(device_process(EvaluatorSettings(device="interpreter"))) as process,
        Compiler(1, timeout_s=120) as compiler,
    ):
        process.start()
        grader, device = Grader(process, compiler), process.description()
        rows = [judged(grader, task, device, options) for task in imported_tasks()]
    assert [(row["task"], row["suite"], "export" in row) for row in rows] == [
        ("row_norm_d5", "flashinfer-bench", True),
        ("weighted", "kernelbench", True),
    ], rows
    assert rows[0]["axes"] == {"batch": 9}
    written = {path.name for path in options.exports.iterdir()}
    assert written == {row["export"] for row in rows}
    solution = json.loads((options.exports / rows[0]["export"]).read_text())
    assert solution["spec"]["destination_passing_style"] is True
    reference, _ = sides_of((options.exports / rows[1]["export"]).read_text(), "cpu")
    assert reference().shape == (6,), "the sizes of the import"


def test_a_workload_has_the_suites_own_names(folder: Path) -> None:
    card = Card.model_validate_json((folder / "row_norm_d5" / "task.json").read_bytes())
    kept = json.loads((folder / "row_norm_d5" / DEFINITION).read_text())
    assert kept == definition(), "as it came"
    asked = suite_workload(card, kept, {"batch": 9})
    assert asked["axes"] == {"Batch": 9}
    assert asked["inputs"] == {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}}


@pytest.mark.parametrize(("change", "agrees"), [("x + 1", True), ("x + 2", False)])
def test_kernelbenchs_word_is_asked_of_a_checkout(
    change: str, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "eval.py").write_text(EVALUATOR)
    for name in ("kernelbench", "kernelbench.eval"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("sys.path", [*sys.path])
    answer = PLAIN + PLAIN.replace("class Model", "class ModelNew").replace("x + 1", change)
    said = asked_kernelbench(tmp_path, PLAIN, answer)
    assert (said["agrees"], said["theirs_ms"], said["reference_ms"]) == (agrees, 0.25, 0.5)
    monkeypatch.delitem(sys.modules, "kernelbench")
    monkeypatch.delitem(sys.modules, "kernelbench.eval")


def test_a_folder_that_is_no_checkout_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="is no checkout of KernelBench"):
        asked_kernelbench(tmp_path, PLAIN, PLAIN)


def test_what_is_handed_to_flashinfer_bench_is_what_it_takes(folder: Path, tmp_path: Path) -> None:
    suite = pytest.importorskip("flashinfer_bench")
    task = next(each for each in imported_tasks() if each.name == "row_norm_d5")
    problem = Problem(Workload(operation=task.name, element_type="float32", axes={"batch": 9}))
    _, text = exported_program(task, problem, NORM, DEVICE)
    kept = json.loads((folder / "row_norm_d5" / DEFINITION).read_text())
    solution = suite.Solution.model_validate_json(text)
    taken = suite.Definition.model_validate(kept)
    asked = suite.Workload.model_validate(suite_workload(task.card, kept, {"batch": 9}))
    assert (solution.definition, asked.axes) == (taken.name, {"Batch": 9})
    registry = suite.compile.BuilderRegistry.get_instance()
    assert registry.build(taken, solution).metadata.destination_passing_style


def test_without_flashinfer_bench_it_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer_bench", None)
    with pytest.raises(ImportError, match="flashinfer_bench"):
        asked_flashinfer({}, {}, "{}")


def test_the_result_counts_who_agrees() -> None:
    rows: list[dict[str, Any]] = [
        {"task": "a", "export": "a.py", "evaluator": {"agrees": True}},
        {"task": "b", "export": "b.py", "evaluator": {"agrees": False}},
        {"task": "c", "export": "c.py", "not_asked": "no checkout"},
        {"task": "d", "failed": "no program passed"},
    ]
    result = told(rows, DEVICE)
    assert (result["tasks"], result["answered"], result["asked"], result["agree"]) == (4, 3, 2, 1)
    assert (result["disagree"], result["failed"]) == (["b"], {"d": "no program passed"})
    assert result["not_asked"] == {"c": "no checkout"}


def test_both_sides_are_made_alike() -> None:
    answer = PLAIN + PLAIN.replace("class Model", "class ModelNew")
    reference, ours = sides_of(answer, "cpu")
    assert torch.equal(reference(), ours())
