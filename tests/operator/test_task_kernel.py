"""What `tune_task` returns, where there is no GPU: the task's own reference computes it, and says so."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sparsesmith.errors import InvalidInput, Unavailable
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith.operator import TaskKernel
from sparsesmith_proto.api import KernelReport

EXAMPLES = Path(__file__).parents[2] / "proto" / "examples"
X, Y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed: importing it fails."""
    monkeypatch.setitem(sys.modules, "cupy", None)


def make_kernel(task: str, **axes: int) -> TaskKernel:
    """Of an answer that found nothing faster than the task's own program."""
    report = json.loads((EXAMPLES / "job_status.finished_task.json").read_text(encoding="utf-8"))["status"]["report"]
    report["workload"] |= {"operation": task, "axes": axes}
    return TaskKernel(KernelReport.model_validate_json(json.dumps(report)))


@pytest.mark.filterwarnings("ignore:computed on the host")
def test_a_task_is_called_with_arrays_of_any_kind() -> None:
    dot = make_kernel("dot", n=6)
    assert dot(X, Y) == 15
    assert dot(y=Y, x=X) == 15
    found = dot(torch.from_numpy(X), torch.from_numpy(Y))
    assert isinstance(found, torch.Tensor)
    assert found.item() == 15
    counts = make_kernel("histogram", n=6, bins=7)(X.astype(np.int32))
    assert counts.dtype == np.int32
    assert counts.tolist() == [1, 1, 1, 1, 1, 1, 0]


@pytest.mark.filterwarnings("ignore:computed on the host")
def test_what_a_task_changes_in_place_is_copied_first() -> None:
    given = X.copy()
    found = make_kernel("reverse", n=6)(given)
    assert found.tolist() == [5, 4, 3, 2, 1, 0]
    assert given.tolist() == X.tolist()


def test_that_it_is_computed_on_the_host_is_said() -> None:
    with pytest.warns(RuntimeWarning, match="computed on the host: running a kernel needs CuPy") as said:
        make_kernel("sum", n=6)(X)
    assert [warning.filename for warning in said] == [__file__]


def test_where_nothing_is_faster_the_program_is_the_tasks_own() -> None:
    naive = with_element_type(operation_named("dot").programs["naive"], "float32")
    assert make_kernel("dot", n=6).program == naive
    assert repr(make_kernel("dot", n=6)) == "<TaskKernel dot, n=6, float32>"


@pytest.mark.parametrize(
    ("inputs", "named", "told"),
    [
        ((X,), {}, "dot takes x, y: given are 1 in order and none by name"),
        ((X, Y, Y), {}, "given are 3 in order"),
        ((X,), {"x": Y}, "given are 1 in order and x by name"),
        ((X,), {"z": Y}, "given are 1 in order and z by name"),
        ((X, Y[:5]), {}, r"y has shape \(5,\): expected \(6,\)"),
        ((X, ["a"] * 6), {}, "y holds"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(
    inputs: tuple[object, ...], named: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        make_kernel("dot", n=6)(*inputs, **named)


def test_an_array_on_a_gpu_that_is_not_found_is_not_computed_on_the_host() -> None:
    class OnAGpu(torch.Tensor):
        __module__ = "torch"
        is_cuda = True

    with pytest.raises(Unavailable, match="needs CuPy"):
        make_kernel("sum", n=6)(torch.from_numpy(X).as_subclass(OnAGpu))
