"""Sampled products on the stand-in driver; run by test_sampling.py in a process that finds it as libcuda.so.1."""

import sys

import numpy as np
import pytest

from sparsesmith.artifacts.sampling import SampledLauncher
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith_proto.message import ElementType
from tests.artifacts.answers import make_matrix
from tests.artifacts.cupy_on_the_stand_in import stand_in_cupy
from tests.operator.native_operators import Driver


@pytest.mark.parametrize(("element_type", "columns"), [("float32", 1), ("float32", 40), ("float64", 7)])
def test_each_nonzero_gets_the_product_of_its_rows(
    element_type: ElementType, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = stand_in_cupy(Driver.open())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    matrix = make_matrix(100, 80, 0.05)
    pattern = pattern_from_scipy(matrix)
    generator = np.random.default_rng(columns)
    u, v = (generator.uniform(-1, 1, (size, columns)).astype(element_type) for size in matrix.shape)
    z = cupy.empty(pattern.nnz, element_type)
    launcher = SampledLauncher(pattern, element_type, columns)
    for sign in (1, -1):
        launcher(cupy.asarray(sign * u), cupy.asarray(v), z)
        expected = sign * (u.astype(np.float64)[pattern.row_indices()] * v[pattern.col_indices]).sum(1)
        np.testing.assert_allclose(z.get(), expected, rtol=1e-5, atol=1e-5)
