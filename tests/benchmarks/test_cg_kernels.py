"""The kernels of an iteration of conjugate gradients, on the PTX interpreter."""

from typing import Any

import numpy as np
import pytest

from benchmarks.matrices.generated import stencil_2d
from benchmarks.solvers.cg_kernels import MOST_BLOCKS, SOURCE, THREADS, CgKernels, blocks
from benchmarks.solvers.linear_solvers import positive_definite
from services.evaluator.interpreter import Buffer, launch, load_module
from tests.operator.native_operators import ptx_of


class OnTheInterpreter:
    """What CgKernels asks of CuPy: zeros, a length as the kernel takes it, kernels that are launched on arrays."""

    zeros = staticmethod(np.zeros)
    int32 = int

    def __init__(self) -> None:
        self.launched: list[str] = []

    def RawKernel(self, source: str, name: str) -> Any:
        module = load_module(ptx_of(source, "sm_90").decode())

        def run(grid: tuple[int, ...], block: tuple[int, ...], given: tuple[Any, ...]) -> None:
            buffers = [
                Buffer("array", each.view(np.uint8), writable=True) if hasattr(each, "view") else each for each in given
            ]
            report = launch(module, name, (*grid, 1, 1), (*block, 1, 1), buffers)
            assert report.finding is None, report.finding
            self.launched.append(name)

        return run


def test_iterations_are_those_of_the_textbook() -> None:
    matrix = positive_definite(stencil_2d(18, 5))
    size = matrix.shape[0]
    assert blocks(size) == 2
    device = OnTheInterpreter()
    kernels = CgKernels(device, size)
    b = np.random.default_rng(3).standard_normal(size)
    x, r, p = np.zeros(size), b.copy(), b.copy()
    own_x, own_r, own_p = np.zeros(size), b.copy(), b.copy()
    for _ in range(2):  # A second start forgets the first.
        for array, start in ((x, 0), (r, b), (p, b)):
            array[...] = start
        kernels.start(np.dot(b, b))
        for _ in range(4):
            kernels.step(p, matrix @ p, x, r)
    for _ in range(4):
        q, before = matrix @ own_p, own_r @ own_r
        step = before / (own_p @ q)
        own_x, own_r = own_x + step * own_p, own_r - step * q
        own_p = own_r + own_r @ own_r / before * own_p
    for found, expected in ((x, own_x), (r, own_r), (p, own_p)):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert device.launched == ["curvature", "descent", "turning"] * 8


@pytest.mark.parametrize(("length", "expected"), [(1, 1), (THREADS, 1), (THREADS + 1, 2), (10**8, MOST_BLOCKS)])
def test_a_launch_has_a_thread_an_element_up_to_a_bound(length: int, expected: int) -> None:
    assert blocks(length) == expected
    assert f"of_warps[{THREADS // 32}]" in SOURCE
