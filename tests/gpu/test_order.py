"""On a GPU, what a program gets does not depend on the programs before it."""

import pytest

from benchmarks.matrices.generated import stencil_2d
from benchmarks.measure.order_independence import compared, graded_in_orders
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.isolation.sandbox import DeviceProcess

pytestmark = pytest.mark.gpu


def test_outcomes_and_times_are_independent_of_the_order(sandbox: DeviceProcess) -> None:
    with Compiler(max(1, num_cores() - 1)) as compiler:
        runs = graded_in_orders(stencil_2d(300, 5), sandbox, compiler, 16, 3)
    comparison = compared(runs)
    assert comparison["same_outcomes"], comparison
    assert comparison["worst_spread_near_the_best"] < 0.03, comparison
    assert comparison["median_spread"] < 0.03, comparison
