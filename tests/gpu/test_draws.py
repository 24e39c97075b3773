"""Inputs drawn on the GPU are those of `operands` in kind, their references SciPy's; held to the same bounds."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from services.evaluator.checking.correctness import judge
from services.evaluator.checking.draws import FULL_CHECK, choose_draws, system_generator
from services.evaluator.device import Ran
from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith.operations.draws import SPECIAL
from sparsesmith.operations.sums import (
    ROUNDOFF,
    SINGLE_ROUNDOFFS,
    error_bound,
    limit_to_single_products,
    product,
)
from sparsesmith_proto.kernel import Mismatch
from tests.gpu.programs import make_pattern, make_workload
from tests.operations.checked import make_problem

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

NAMES = choose_draws(1, FULL_CHECK, system_generator())


def test_sums_of_integers_in_a_long_row_are_held_to_exactness(device: "CudaDevice") -> None:
    pattern = pattern_from_indices(1, 100_000, [0] * 100_000, list(range(100_000)))
    device_workload = device.open(Problem(make_workload(pattern), pattern))
    assert device_workload.draw("integers").bound.get().tolist() == [0.5]
    assert device_workload.draw("uniform").bound.get()[0] > 0.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("num_dense_cols", [0, 1, 7, 32, 100])
def test_a_draw_carries_the_product_of_scipy_and_its_bound(
    name: str, element_type: str, num_dense_cols: int, device: "CudaDevice"
) -> None:
    """No columns: spmv."""
    pattern = make_pattern(num_rows=700, num_cols=900)
    changes = {"operation": "spmm", "num_dense_cols": num_dense_cols} if num_dense_cols else {}
    workload = make_workload(pattern, element_type=element_type, **changes)
    drawn = device.open(Problem(workload, pattern)).draw(name)
    values, dense, reference, bound, magnitude = (
        array.get() for array in (drawn.values, drawn.dense, drawn.reference, drawn.bound, drawn.magnitude)
    )
    assert (values.dtype, dense.dtype, dense.shape) == (
        np.dtype(element_type), np.dtype(element_type),
        (pattern.num_cols, num_dense_cols) if num_dense_cols else (pattern.num_cols,),
    )  # fmt: skip
    expected, scale = product(pattern, values, dense)
    assert np.all(abs(reference - expected) <= 1e-14 * scale)
    assert np.allclose(magnitude, scale, rtol=1e-13, atol=0)
    accepted = error_bound(pattern, scale, workload.element_type)
    limit_to_single_products(accepted, scale, pattern, values, dense, workload.element_type)
    agrees = np.isclose(bound, accepted, rtol=1e-13, atol=0)
    # Where one product is nearly all of a sum, host and device may see it differently in the last bit.
    single = SINGLE_ROUNDOFFS * ROUNDOFF[workload.element_type] * scale
    assert np.all(agrees | np.isclose(bound, single, rtol=1e-13, atol=0) | np.isclose(accepted, single, rtol=1e-13))
    assert agrees.mean() > 0.97


def test_two_draws_differ_everywhere(device: "CudaDevice") -> None:
    pattern = make_pattern()
    device_workload = device.open(Problem(make_workload(pattern), pattern))
    first, second = device_workload.draw("uniform"), device_workload.draw("uniform")
    assert float((first.values == second.values).mean()) < 0.001
    assert float((first.dense == second.dense).mean()) < 0.001


def test_references_are_the_same_bits_for_the_same_inputs(device: "CudaDevice") -> None:
    from services.evaluator.cuda.draws import DeviceDraws, system_key
    from services.evaluator.cuda.residents import HeldDraws

    pattern = make_pattern()
    source = DeviceDraws(Problem(make_workload(pattern), pattern), device.kernels, HeldDraws(device.kernels))
    key = system_key()
    once, again = (source._drawn("wide_range", key) for _ in range(2))
    assert bool((once.values == again.values).all())
    assert bool((once.reference == again.reference).all())


def test_a_result_is_judged_with_its_subnormal_numbers(device: "CudaDevice") -> None:
    """CuPy's own kernels take them for zero."""
    import cupy

    numbers = np.resize(SPECIAL, (37, 53)).astype(np.float32)
    wide = device.kernels.widened(cupy.asarray(numbers))
    np.testing.assert_array_equal(wide.get(), numbers.astype(np.float64))
    np.testing.assert_array_equal(device.kernels.narrowed(wide, numbers.dtype).get(), numbers)
    drawn = device.open(make_problem("copy")).draw("special")
    right = drawn.inputs["x"].copy()
    assert not isinstance(judge(Ran({"y": right}, guards_intact=True, inputs_intact=True), drawn), Mismatch)
    place = int(np.flatnonzero(right.get() == np.float32(1e-41))[0])
    right.reshape(-1)[place] = 0
    judged = judge(Ran({"y": right}, guards_intact=True, inputs_intact=True), drawn)
    assert isinstance(judged, Mismatch)
    assert "is 0, expected 9.99966584e-42 within 0; 1 of " in judged.message


def test_a_write_into_a_draw_or_the_pattern_behind_it_breaks_the_seal(device: "CudaDevice") -> None:
    pattern = make_pattern()
    device_workload = device.open(Problem(make_workload(pattern), pattern))
    drawn = device_workload.draw("uniform")
    for array in (drawn.values, drawn.bound, device_workload._source.pattern_arrays()["col_indices"]):
        seal = device_workload.seal((drawn,))
        assert seal.is_intact()
        array[7] += 1
        assert not seal.is_intact()
        array[7] -= 1
