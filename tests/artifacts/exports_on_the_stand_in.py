"""Exported answers on the stand-in driver; run by test_exports.py in a process that finds it as libcuda.so.1."""

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from sparsesmith.artifacts.exports import exported
from sparsesmith.operations import Problem, operations
from sparsesmith.operations.imported.card import Card
from sparsesmith.operations.imported.folder import VARIABLE
from sparsesmith_proto.kernel import Workload
from tests.artifacts.answers import report_of
from tests.evaluator.references.problems import NORM, WEIGHTED
from tests.operator.native_operators import Driver, ptx_of

FOLDER = Path(os.environ["EXPORTED_TASKS"])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """What torch allocates and makes of tensors lies in the stand-in's memory."""
    driver = Driver.open()
    context = ctypes.c_void_p()
    driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.library.cuCtxSetCurrent(context)
    held: list[Any] = []

    def empty(shape: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
        plain = torch.zeros(shape, dtype=dtype)
        return on_driver(plain)

    def on_driver(tensor: torch.Tensor) -> torch.Tensor:
        held.append(driver.array(tensor.contiguous().numpy()))
        return torch.from_numpy(held[-1].view)

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.Tensor, "contiguous", on_driver_method(on_driver, torch.Tensor.contiguous))
    yield driver


def on_driver_method(
    place: Callable[[torch.Tensor], torch.Tensor], plain: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[torch.Tensor], torch.Tensor]:
    inside: list[bool] = []

    def contiguous(tensor: torch.Tensor) -> torch.Tensor:
        if inside:
            return plain(tensor)
        inside.append(True)
        try:
            return place(tensor)
        finally:
            inside.pop()

    return contiguous


def module_of(text: str) -> Any:
    module = ModuleType("exported")
    exec(compile(text, "exported.py", "exec"), module.__dict__)
    return module


def made(program: str, **workload: Any) -> tuple[str, str]:
    os.environ[VARIABLE] = str(FOLDER)
    operations.cache_clear()
    problem = Problem(Workload(element_type="float32", **workload))
    return exported(report_of(problem.workload, program), ptx_of)


def test_a_model_of_kernelbench_computes_what_its_problem_does(driver: Driver) -> None:
    _, text = made(WEIGHTED, operation="weighted")
    module = module_of(text)
    assert module.rows == 6, "the sizes that were set at the import"
    torch.manual_seed(3)
    model = module.ModelNew(*module.get_init_inputs())
    with torch.no_grad():
        model.weight.copy_(torch.rand(5))
    x, scale, keep = torch.rand(6, 5), 3.5, torch.randint(0, 2, (6, 5)).bool()
    right = torch.where(keep, x * model.weight * scale, torch.zeros_like(x)).sum(dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(x, scale, keep), right)
        with pytest.raises(ValueError, match=r"x has the shape \(7, 5\): this kernel is for \(6, 5\)"):
            model(torch.rand(7, 5), scale, keep)
    assert [each.kernel for each in driver.launched] == ["add", "move"]


def test_a_solution_of_flashinfer_bench_writes_into_the_tensors_given(driver: Driver) -> None:
    name, text = made(NORM, operation="row_norm_d5", axes={"batch": 4})
    solution = json.loads(text)
    assert name == f"{solution['name']}.json"
    assert (solution["definition"], solution["spec"]["entry_point"]) == ("row_norm_d5", "main.py::run")
    module = module_of(solution["sources"][0]["content"])
    x, y = torch.rand(4, 5), torch.full((4, 5), float("nan"))
    module.run(x, 1e-6, y)
    wide = x.double()
    right = wide / torch.sqrt((wide * wide).mean(dim=1, keepdim=True) + 1e-6)
    np.testing.assert_allclose(y.numpy(), right.numpy(), rtol=1e-6)
    assert Card.model_validate_json((FOLDER / "row_norm_d5" / "task.json").read_bytes()).axes == ("batch",)
