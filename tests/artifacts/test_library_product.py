"""A routine of the library by its name, on a stand-in of cuSPARSE that computes on the host."""

import ctypes
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsesmith.artifacts import library_product
from sparsesmith.artifacts.library_product import LibraryProduct
from sparsesmith.matrix.pattern import pattern_from_scipy
from tests.artifacts.answers import make_matrix, make_workload

MATRIX = make_matrix()
PATTERN = pattern_from_scipy(MATRIX)


class HostArray(SimpleNamespace):
    """As much of CuPy's as is asked for: where it lies and how long it is."""

    def __init__(self, content: "np.ndarray[Any, Any]") -> None:
        super().__init__(content=content, data=SimpleNamespace(ptr=content.ctypes.data), nbytes=content.nbytes)


class HostMemory(SimpleNamespace):
    def __init__(self, num_bytes: int) -> None:
        content = np.zeros(num_bytes, np.uint8)
        super().__init__(content=content, ptr=content.ctypes.data, mem=SimpleNamespace(size=num_bytes))


@pytest.fixture
def cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Arrays and streams on the host, and the library where cuda-pathfinder finds it."""
    path = tmp_path / "libcusparse.so.12"
    source = Path(__file__).with_name("cusparse_stand_in.c")
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    finder: Any = ModuleType("cuda.pathfinder")
    finder.DynamicLibNotFoundError = type("DynamicLibNotFoundError", (RuntimeError,), {})

    def found(name: str) -> Any:
        if name != "cusparse":
            raise finder.DynamicLibNotFoundError(name)
        return SimpleNamespace(abs_path=str(path))

    finder.load_nvidia_dynamic_lib = found
    module: Any = ModuleType("cupy")
    module.asarray = lambda array: HostArray(np.ascontiguousarray(array))
    module.zeros = lambda count, kind: HostArray(np.zeros(count, kind))
    stream = SimpleNamespace(ptr=5, synchronize=lambda: None)
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDevice=lambda: 0), get_current_stream=lambda: stream, alloc=HostMemory
    )
    cuda: Any = ModuleType("cuda")
    cuda.pathfinder = finder
    for name, each in (("cuda", cuda), ("cuda.pathfinder", finder), ("cupy", module)):
        monkeypatch.setitem(sys.modules, name, each)
    module.library = ctypes.CDLL(str(path))
    library_product._library.cache_clear()
    yield module
    library_product._library.cache_clear()


@pytest.mark.parametrize("columns", [0, 3])
@pytest.mark.parametrize("name", ["cusparse_csr_default", "cusparse_csr_alg2", "cusparse_coo_alg1"])
def test_a_routine_multiplies_where_operands_lie_with_the_present_values(name: str, columns: int, cupy: Any) -> None:
    shape: dict[str, Any] = {"operation": "spmm", "num_dense_cols": columns} if columns else {}
    values = np.ascontiguousarray(MATRIX.data)
    workload = make_workload(PATTERN, element_type="float64", **shape)
    product = LibraryProduct(cupy, PATTERN, HostArray(values), workload, name)
    assert product.routine == name
    random = np.random.default_rng(1)
    for stream in (7, 8):
        x = random.standard_normal((30, columns) if columns else 30)
        y = np.full((40, columns) if columns else 40, np.nan)
        product.enqueue(x.ctypes.data, y.ctypes.data, stream)
        assert ctypes.c_void_p.in_dll(cupy.library, "stand_in_stream").value == stream
        matrix = MATRIX.copy()
        matrix.data = values
        np.testing.assert_allclose(y, matrix @ x, rtol=1e-13)
        values *= 3  # In place: read anew each time.
    indices = 4 * (MATRIX.nnz + (41 if "csr" in name else MATRIX.nnz))
    assert product.device_bytes == indices + 256


def test_a_routine_that_the_library_refuses_gives_way_to_the_default_one(
    cupy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    workload = make_workload(PATTERN, element_type="float64")
    with caplog.at_level(logging.WARNING):
        product = LibraryProduct(cupy, PATTERN, HostArray(MATRIX.data), workload, "cusparse_coo_alg2")
    assert product.routine == "cusparse_csr_default" and "instead of cusparse_coo_alg2" in caplog.text


@pytest.mark.parametrize("name", [None, "cusparse_spmvop_alg2", "cusparse_sell_alg1"])
def test_what_cannot_be_called_is_the_default_one_of_the_workload(name: str | None, cupy: Any) -> None:
    for deterministic, default in ((False, "cusparse_csr_default"), (True, "cusparse_csr_alg2")):
        workload = make_workload(PATTERN, element_type="float64", deterministic=deterministic)
        assert LibraryProduct(cupy, PATTERN, HostArray(MATRIX.data), workload, name).routine == default
