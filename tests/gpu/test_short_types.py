"""float16 and bfloat16 on a GPU: draws in the type itself, families of 16-bit numbers, what is wrong, the library."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.checking.correctness import Correct, check, check_as_timed, judge
from services.evaluator.checking.draws import LARGEST_RESULT, system_generator
from services.evaluator.cuda.carriers import carried, carrier_of, uncarried
from services.evaluator.device import Ran
from services.evaluator.isolation.sandbox import DeviceProcess
from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.families import propose
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.matrix.pattern import pattern_from_indices, pattern_from_scipy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.sums import error_bound, product, stored_bound
from sparsesmith.operations.texts import programs_for
from sparsesmith_proto.kernel import MeasuredTiming, Mismatch, Passed
from sparsesmith_proto.message import ElementType
from tests.gpu.programs import grade, make_pattern, make_workload
from tests.gpu.test_measuring import loaded, measured

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

SHORT_TYPES: tuple[ElementType, ...] = ("float16", "bfloat16")
PRODUCTS = [("spmv", 1), ("spmm", 8), ("spmm", 33)]


def row_program(element_type: ElementType, sums: str = "float", directive: str = "", wait: str = "") -> str:
    """A thread a row, as people write it."""
    element = ELEMENTS[element_type]
    real = element.c_type
    return f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128{directive}
#include <{element.header}>
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const {real}* values, const {real}* x, {real}* y) {{
  {wait}
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  {sums} sum = 0.0f;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++)
    sum += ({sums})({element.widen}(values[j]) * {element.widen}(x[col_indices[j]]));
  y[row] = {element.narrow}((float)sum);
}}
"""


@pytest.mark.parametrize("name", ["mixed", "uniform", "one_hot", "cancelling", "wide_range", "integers"])
@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize("num_dense_cols", [0, 1, 7, 100])
def test_a_draw_carries_the_product_of_scipy_and_its_bound(
    name: str, element_type: ElementType, num_dense_cols: int, device: "CudaDevice"
) -> None:
    """No columns: spmv."""
    pattern = make_pattern(num_rows=701, num_cols=899)
    changes = {"operation": "spmm", "num_dense_cols": num_dense_cols} if num_dense_cols else {}
    device_workload = device.open(Problem(make_workload(pattern, element_type=element_type, **changes), pattern))
    device_workload.vouch()
    drawn = device_workload.draw(name)
    values, dense = uncarried(drawn.values.get()), uncarried(drawn.dense.get())
    reference, bound, magnitude = (array.get() for array in (drawn.reference, drawn.bound, drawn.magnitude))
    assert (values.dtype, dense.dtype) == (dtype_of(element_type), dtype_of(element_type))
    expected, scale = product(pattern, values, dense)
    assert np.all(abs(reference - expected) <= 1e-14 * scale)
    assert np.allclose(magnitude, scale, rtol=1e-13, atol=0)
    accepted = stored_bound(error_bound(pattern, scale, element_type), expected, element_type)
    if name == "integers":
        assert np.all((bound == 0.5) | np.isclose(bound, accepted, rtol=1e-9, atol=0))
    else:
        assert np.allclose(bound, accepted, rtol=1e-9, atol=0)
    assert magnitude.max() <= LARGEST_RESULT.get(element_type, np.inf)


def test_results_of_a_long_row_are_numbers_of_float16(device: "CudaDevice") -> None:
    pattern = pattern_from_indices(1, 200_000, [0] * 200_000, list(range(200_000)))
    device_workload = device.open(Problem(make_workload(pattern, element_type="float16"), pattern))
    for name in ("integers", "wide_range"):
        drawn = device_workload.draw(name)
        assert 2.0**12 < float(drawn.magnitude.max()) <= 2.0**14
        assert float(drawn.dense.max()) > 0


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_numbers_are_widened_and_narrowed_as_numpy_does(element_type: ElementType, device: "CudaDevice") -> None:
    import cupy

    numbers = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype_of(element_type))
    wide = device.kernels.widened(cupy.asarray(carried(numbers)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(wide.get(), numbers.astype(np.float64))
    back = device.kernels.narrowed(wide, dtype_of(element_type))
    assert back.dtype == carrier_of(element_type)
    is_number = ~np.isnan(wide.get())
    assert np.array_equal(back.get().view(np.uint16)[is_number], numbers.view(np.uint16)[is_number])


@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize(("operation", "num_dense_cols"), PRODUCTS)
def test_the_best_program_of_every_family_passes_and_the_plain_ones_do(
    operation: str, num_dense_cols: int, element_type: ElementType, sandbox: DeviceProcess
) -> None:
    """An odd number of rows: the last number of y shares its word with nothing."""
    pattern = make_pattern(num_rows=3001, num_cols=2503)
    workload = make_workload(pattern, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols)
    workbench = sandbox.open(Problem(workload, pattern))
    texts = dict(programs_for(operation_named(operation), element_type))
    for entry in reversed(prospects_of(work_of(pattern, element_type, num_dense_cols), operation, element_type)):
        texts[entry.family.name] = entry.instance(element_type, num_dense_cols).program
    assert "csr_packed" in texts or "spmm_rows" in texts
    outcomes = {name: grade(text, workload, workbench) for name, text in texts.items()}
    failed = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, Passed)}
    assert not failed
    assert all(isinstance(each, Passed) and isinstance(each.timing, MeasuredTiming) for each in outcomes.values())


@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize("num_dense_cols", [8, 16, 32, 128])
def test_tensor_cores_multiply_dense_blocks(
    num_dense_cols: int, element_type: ElementType, sandbox: DeviceProcess
) -> None:
    """The matrix ends within blocks."""
    whole = scipy.sparse.kron(scipy.sparse.random(60, 70, 0.2, random_state=3), np.ones((16, 16)), "csr")
    pattern = pattern_from_scipy(whole[:953, :1117])
    workload = make_workload(pattern, operation="spmm", element_type=element_type, num_dense_cols=num_dense_cols)
    workbench = sandbox.open(Problem(workload, pattern))
    proposed = propose(pattern, "spmm", element_type, num_dense_cols, limit=400)
    texts = [each.program for each in proposed if each.family == "spmm_bsr_tensor"]
    assert texts
    outcomes = [grade(text, workload, workbench) for text in texts[:: max(1, len(texts) // 8)]]
    assert all(isinstance(outcome, Passed) for outcome in outcomes), outcomes


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_sums_in_16_bits_and_writes_beside_y_are_a_mismatch(element_type: ElementType, sandbox: DeviceProcess) -> None:
    pattern = make_pattern(num_rows=3001, num_cols=2503, density=0.05)
    workload = make_workload(pattern, element_type=element_type)
    workbench = sandbox.open(Problem(workload, pattern))
    good = row_program(element_type)
    assert isinstance(grade(good, workload, workbench), Passed)
    real, zero = ELEMENTS[element_type].c_type, f"{ELEMENTS[element_type].narrow}(0.0f)"
    wrong = {
        "narrow sums": row_program(element_type, sums=real),
        "behind y": good.replace("y[row] =", f"if (row == 0) y[num_rows + 1] = {zero};\n  y[row] ="),
        "before y": good.replace("y[row] =", f"if (row == 0) y[-1] = {zero};\n  y[row] ="),
        "zeros": good.replace("y[row] =", f"y[row] = {zero}; if (sum != sum) y[row] ="),
        "one row left out": good.replace("y[row] =", "if (row != num_rows / 3) y[row] ="),
    }
    outcomes = {name: grade(text, workload, workbench) for name, text in wrong.items()}
    assert {name: type(outcome) for name, outcome in outcomes.items()} == dict.fromkeys(wrong, Mismatch), outcomes
    assert isinstance(grade(good, workload, workbench), Passed)


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_a_program_that_starts_early_finds_all_of_an_x_of_odd_length(
    element_type: ElementType, sandbox: DeviceProcess
) -> None:
    """What is written late ends in the middle of a word."""
    pattern = make_pattern(num_rows=3001, num_cols=2503)
    workload = make_workload(pattern, element_type=element_type)
    early = row_program(
        element_type, directive=" dependency=programmatic", wait='asm volatile("griddepcontrol.wait;" ::: "memory");'
    )
    outcome = grade(early, workload, sandbox.open(Problem(workload, pattern)))
    assert isinstance(outcome, Passed), outcome


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_a_program_is_checked_timed_and_run_again_as_it_was_timed(
    element_type: ElementType, device: "CudaDevice"
) -> None:
    pattern = make_pattern(num_rows=3001, num_cols=2503)
    workload = make_workload(pattern, element_type=element_type)
    device_workload = device.open(Problem(workload, pattern))
    draws = [device_workload.draw(name) for name in ("mixed", "wide_range", "integers")]
    kernel = loaded(row_program(element_type), device_workload, pattern, workload)
    correct = check(kernel, draws, 3)
    assert isinstance(correct, Correct), correct
    measured(kernel, draws[0])
    again = check_as_timed(kernel, draws[0], draws[1], system_generator())
    assert isinstance(again, Correct), again
    judged = judge(Ran(draws[0].right, guards_intact=True, inputs_intact=True), draws[0])
    assert not isinstance(judged, Mismatch), judged


@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize(("operation", "num_dense_cols"), [("spmv", 1), ("spmm", 32), ("spmv_t", 1)])
def test_routines_of_the_library_are_checked_and_timed(
    operation: str, num_dense_cols: int, element_type: ElementType, device: "CudaDevice"
) -> None:
    """Which of them keep sums in 16 bits, and are left out, is the library's."""
    pattern = make_pattern()
    workload = make_workload(pattern, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols)
    baselines = device.open(Problem(workload, pattern)).baselines()
    names = [routine.routine for routine in baselines.routines]
    assert baselines.default in names
    assert any("csr" in name for name in names)
    for routine in baselines.routines:
        assert 0.3 < routine.timing.median_us < 1000


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_the_naive_program_of_a_transposed_product_passes_on_draws_of_the_host(
    element_type: ElementType, sandbox: DeviceProcess
) -> None:
    pattern = make_pattern(num_rows=1001, num_cols=703)
    workload = make_workload(pattern, operation="spmv_t", element_type=element_type)
    operation = operation_named("spmv_t")
    text = programs_for(operation, element_type)[operation.naive]
    outcome = grade(text, workload, sandbox.open(Problem(workload, pattern)))
    assert isinstance(outcome, Passed), outcome
