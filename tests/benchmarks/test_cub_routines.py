"""CUB's rows: what is called is what the source exports, and arguments arrive as it takes them."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks.measure.cub_routines import CUB, MEMCPY, SOURCE, CubRoutine
from sparsesmith.operations import operation_named

ROUTINES = [*CUB.items(), *MEMCPY.items()]
FUNCTION = re.compile(r"EXPORTED (\w+)\((.*?)\) \{", re.DOTALL)


def kinds_of(parameters: str) -> list[str]:
    """`array`, `size` or `stream`, behind the temporary storage and its size."""
    told = [" ".join(each.split()) for each in parameters.split(",")]
    assert told[0].startswith("void*")
    assert told[1].startswith("size_t*")
    return ["array" if "*" in each else "size" if each.startswith("int ") else "stream" for each in told[2:]]


@pytest.mark.parametrize(("task", "routine"), ROUTINES, ids=[task for task, _ in ROUTINES])
def test_what_is_called_is_what_the_source_exports(task: str, routine: CubRoutine) -> None:
    exported = [
        kinds_of(parameters) for name, parameters in FUNCTION.findall(SOURCE.read_text()) if name == routine.name
    ]
    arrays = ["array"] * (len(routine.inputs) + 1)
    assert exported
    assert all(kinds == [*arrays, *["size"] * len(routine.sizes), "stream"] for kinds in exported)
    operation = operation_named(task)
    assert [each.name for each in operation.operands if each.role == "input"] == list(routine.inputs)
    (output,) = (each for each in operation.operands if each.role == "output")
    assert (output.axes, operation.axes) == (routine.result, routine.sizes)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    target = tmp_path_factory.mktemp("cub") / "stand_in.so"
    source = Path(__file__).with_name("cub_stand_in.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return ctypes.CDLL(str(target))


def test_arrays_sizes_and_temporary_storage_arrive(stand_in: ctypes.CDLL) -> None:
    x, y = torch.arange(5.0), torch.full((5,), 2.0)
    dot = CUB["dot"].prepared_in(stand_in, {"x": x, "y": y}, {"n": 5})
    assert [float(dot()), float(dot())] == [20.0, 20.0]
    top = CUB["top_k"].prepared_in(stand_in, {"x": torch.tensor([1.0, 5.0, 3.0, 5.0])}, {"n": 4, "k": 3})
    assert top().tolist() == [5.0, 5.0, 3.0]


def test_an_error_of_cudas_runtime_is_told(stand_in: ctypes.CDLL) -> None:
    with pytest.raises(RuntimeError, match="cub_sort: CUDA's runtime says 700"):
        CUB["sort"].prepared_in(stand_in, {"x": torch.zeros(3)}, {"n": 3})()
