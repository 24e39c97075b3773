"""What a user takes home of a task's answer, on the user's GPU: the loader's function, and exports to other suites."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sparsesmith.artifacts.exports import exported
from sparsesmith.artifacts.launcher import current_architecture
from sparsesmith.artifacts.task_launcher import TaskFunction
from sparsesmith.operations import Problem, operations
from sparsesmith.operations.imported.folder import VARIABLE
from sparsesmith_proto.kernel import Workload
from tests.artifacts.answers import report_of
from tests.artifacts.test_task_artifacts import BUILT
from tests.evaluator.references.problems import MATMUL, NORM, SCALED, WEIGHTED, definition, workload, written_definition
from tests.operations.checked import filled

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


def test_a_loaded_task_gives_the_right_result() -> None:
    built = BUILT["dot"]
    numbers = np.random.default_rng(1)
    n = built.problem.sizes["n"]
    x, y = (numbers.integers(-3, 4, n).astype(np.float32) for _ in range(2))
    assert float(TaskFunction(built.text, built.problem.workload)(x, y)) == float(x @ y)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from services.evaluator.references.client import ReferenceLimits, ReferenceProcess
    from services.evaluator.references.importing import ImportOptions, import_task

    (tmp_path / "weighted.py").write_text(SCALED)
    (tmp_path / "product.py").write_text(MATMUL)
    norm = written_definition(tmp_path, definition(), workload())
    with ReferenceProcess(ReferenceLimits()) as references:
        import_task(tmp_path / "weighted.py", tmp_path / "tasks", ImportOptions("weighted", {"rows": 6}), references)
        import_task(tmp_path / "product.py", tmp_path / "tasks", ImportOptions("product"), references)
        import_task(norm, tmp_path / "tasks", ImportOptions(), references)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tasks"))
    operations.cache_clear()
    yield
    monkeypatch.delenv(VARIABLE)
    operations.cache_clear()


def export_of(program: str, **workload: Any) -> str:
    report = report_of(Workload(element_type="float32", **workload), program)
    device = report.device.model_copy(update={"architecture": current_architecture()})
    return exported(report.model_copy(update={"device": device}))[1]


def module_of(text: str) -> Any:
    module = ModuleType("exported")
    exec(compile(text, "exported.py", "exec"), module.__dict__)
    return module


@pytest.mark.usefixtures("imported")
def test_an_exported_model_computes_what_its_problem_does() -> None:
    torch = pytest.importorskip("torch")
    module = module_of(export_of(WEIGHTED, operation="weighted"))
    ours, theirs = (module_.cuda() for module_ in (module.ModelNew(5), module.Model(5)))
    with torch.no_grad():
        weight = torch.rand(5, device="cuda")
        ours.weight.copy_(weight)
        theirs.weight.copy_(weight)
        x, keep = torch.rand(6, 5, device="cuda"), torch.randint(0, 2, (6, 5), device="cuda").bool()
        torch.testing.assert_close(ours(x, 3.5, keep), theirs(x, 3.5, keep))


@pytest.mark.usefixtures("imported")
def test_an_exported_solution_writes_into_the_tensors_given() -> None:
    torch = pytest.importorskip("torch")
    solution = json.loads(export_of(NORM, operation="row_norm_d5", axes={"batch": 4}))
    module = module_of(solution["sources"][0]["content"])
    x, y = torch.rand(4, 5, device="cuda"), torch.empty(4, 5, device="cuda")
    module.run(x, 1e-6, y)
    torch.testing.assert_close(y, x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-6))


@pytest.mark.usefixtures("imported")
def test_a_problems_reference_and_the_answer_are_timed_in_turns() -> None:
    pytest.importorskip("torch")
    from benchmarks.judging.suites import sides_of
    from benchmarks.measure.task_libraries import in_turns_us

    (reference_us, answer_us), _ = in_turns_us(sides_of(export_of(WEIGHTED, operation="weighted"), "cuda"), 6)
    assert reference_us > 0
    assert answer_us > 0


@pytest.mark.usefixtures("imported")
def test_flashinfer_bench_agrees_with_an_exported_solution() -> None:
    pytest.importorskip("flashinfer_bench")
    from benchmarks.judging.suite_evaluators import asked_flashinfer

    solution = export_of(NORM, operation="row_norm_d5", axes={"batch": 9})
    said = asked_flashinfer(definition(), workload(), solution)
    assert said["agrees"], said
    wrong = json.loads(solution)
    wrong["sources"][0]["content"] += "\n\ndef run(x, eps, y):\n    y.copy_(x)\n"
    assert not asked_flashinfer(definition(), workload(), json.dumps(wrong))["agrees"]


@pytest.mark.usefixtures("imported")
def test_kernelbench_agrees_with_an_exported_model() -> None:
    checkout = os.environ.get("SPARSESMITH_KERNELBENCH")
    if not checkout:
        pytest.skip("SPARSESMITH_KERNELBENCH names no checkout")
    from benchmarks.judging.suite_evaluators import asked_kernelbench

    problem = Problem(Workload(operation="product", element_type="float32"))
    answer = export_of(filled(problem, problem.operation.programs["naive"]), operation="product")
    said = asked_kernelbench(Path(checkout), MATMUL, answer)
    assert said["agrees"], said
    wrong = answer + "\nModelNew.forward = lambda self, a, b: a.sum() + b.sum()\n"
    assert not asked_kernelbench(Path(checkout), MATMUL, wrong)["agrees"]
