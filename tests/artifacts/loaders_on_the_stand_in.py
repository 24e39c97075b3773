"""Python loaders on the stand-in driver; run by test_python_loader.py in a process that finds it as libcuda.so.1."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.elements import dtype_of
from tests.artifacts.answers import make_matrix, make_report
from tests.artifacts.cupy_on_the_stand_in import stand_in_cupy
from tests.kernels.corpus import CorpusProgram, corpus
from tests.operator.native_operators import Driver, exact


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = stand_in_cupy(Driver.open())
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.parametrize("program", corpus("good"), ids=lambda each: each.name)
def test_loaders_of_good_programs_multiply_and_take_new_values(program: CorpusProgram, cupy: ModuleType) -> None:
    matrix, kind = make_matrix(100, 80, 0.05), dtype_of(program.element_type)
    workload: Any = {"operation": program.operation, "element_type": program.element_type}
    report = make_report(matrix, program.text, num_dense_cols=program.num_dense_cols, **workload)
    loader = ModuleType("loader")
    exec(compile(python_loader(report), "loader.py", "exec"), loader.__dict__)
    kernel = loader.load(matrix.tocoo())
    shape = (80, program.num_dense_cols) if program.operation == "spmm" else (80,)
    x = np.random.default_rng(1).standard_normal(shape).astype(kind)
    bound: Any = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(kernel(x), exact(matrix, kind) @ x.astype(np.float64), **bound)
    kernel.update_values(matrix * 3)
    np.testing.assert_allclose(kernel(x), exact(matrix * 3, kind) @ x.astype(np.float64), **bound)
    kernel.set_values(cupy.asarray((matrix.data * -2).astype(kind)))
    np.testing.assert_allclose(kernel(x), exact(matrix * -2, kind) @ x.astype(np.float64), **bound)
