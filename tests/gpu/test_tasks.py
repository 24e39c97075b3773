"""Tasks on a GPU: every first program passes and is timed, one that skips work does not, and what is changed in place
is timed without the copy that brings it back."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from services.evaluator.checking.correctness import Correct, judge
from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import Ran
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.artifacts.task_launcher import TaskLauncher
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import AdverseTiming, MeasuredTiming, Mismatch
from tests.gpu.programs import compiled
from tests.operations.checked import filled, make_problem

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

TASKS = {task.name: task for task in our_tasks()}
REVERSE = """//@ task reverse
//@ launch reverse grid=ceil_div(n,512) block=256
extern "C" __global__ void reverse(int n, float* x) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n / 2) return;
  float first = x[i];
  x[i] = x[n - 1 - i];
  x[n - 1 - i] = first;
}
"""


def checked_and_timed(device: "CudaDevice", text: str, name: str, **axes: int) -> object:
    """The timing, or what is wrong."""
    problem = make_problem(name, axes=axes or None)
    program = parse_program(filled(problem, text), name, "float32")
    binary = compiled(program)
    assert isinstance(binary, Compiled), binary
    workbench = LocalWorkbench(device, problem)
    workbench.draw()
    verdict = workbench.check("program", program, binary)
    return workbench.time("program") if isinstance(verdict, Correct) else verdict


@pytest.mark.parametrize("name", TASKS)
def test_every_first_program_of_a_task_is_right_and_timed(device: "CudaDevice", name: str) -> None:
    for program, text in TASKS[name].programs.items():
        timing = checked_and_timed(device, text, name)
        assert isinstance(timing, MeasuredTiming), (program, timing)


def test_what_is_changed_in_place_is_timed_without_the_copy_that_brings_it_back(device: "CudaDevice") -> None:
    timing = checked_and_timed(device, REVERSE, "reverse", n=2**24)
    assert isinstance(timing, MeasuredTiming), timing
    copied = checked_and_timed(device, TASKS["copy"].programs["naive"], "copy", rows=2**12, cols=2**12)
    assert isinstance(copied, MeasuredTiming), copied
    # Both read and write each entry once: with the copy's time it would be twice as long.
    assert timing.median_us == pytest.approx(copied.median_us, rel=0.5)


def test_inputs_that_fill_the_l2_are_no_sign_of_work_that_is_skipped(device: "CudaDevice") -> None:
    """What new inputs are copied from drives them out of the L2, and so does what inputs seen before are."""
    n = int(0.9 * device.l2_bytes) // 44
    for name, program, columns in (
        ("cross_entropy", "rows_in_registers", "classes"),
        ("least_squares", "sums_in_registers", "features"),
    ):
        timing = checked_and_timed(device, TASKS[name].programs[program], name, **{"n": n, columns: 10})
        assert isinstance(timing, MeasuredTiming), (name, timing)


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.adverse])
def test_a_task_whose_time_depends_on_data_is_timed_on_adverse_inputs_too(device: "CudaDevice", name: str) -> None:
    problem, text = make_problem(name), TASKS[name].programs[TASKS[name].naive]
    program = parse_program(filled(problem, text), name, "float32")
    binary = compiled(program)
    assert isinstance(binary, Compiled), binary
    workbench = LocalWorkbench(device, problem)
    workbench.draw()
    assert isinstance(workbench.check("program", program, binary), Correct)
    adverse = workbench.time_adverse("program")
    assert isinstance(adverse, AdverseTiming), adverse
    assert adverse.draw in TASKS[name].adverse
    # What is timed afterwards is the usual draw again, and is vouched for.
    assert isinstance(workbench.time("program"), MeasuredTiming)
    (naive,) = workbench.baselines().routines
    assert naive.adverse is not None
    assert naive.adverse.timing.median_us > 0


def test_a_histogram_of_one_bin_takes_longer_with_an_atomic_a_key(device: "CudaDevice") -> None:
    (naive,) = device.open(make_problem("histogram", axes={"n": 2**20, "bins": 256})).baselines().routines
    assert naive.adverse is not None
    assert naive.adverse.timing.median_us > naive.timing.median_us


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("nothing done where the first entries are as before", ("i >= n / 2", "i >= n / 2 || x[0] > x[n - 1]")),
        ("one half left as it was", ("x[n - 1 - i] = first;", "")),
        ("the middle pair left out", ("i >= n / 2", "i >= n / 2 - 1")),
    ],
)
def test_a_program_that_changes_too_little_in_place_is_refused(
    device: "CudaDevice", what: str, change: tuple[str, str]
) -> None:
    assert change[0] in REVERSE
    outcome = checked_and_timed(device, REVERSE.replace(*change), "reverse", n=100_003)
    assert isinstance(outcome, Mismatch), what


@pytest.mark.parametrize("name", TASKS)
def test_a_task_runs_on_a_users_gpu(gpu: None, name: str) -> None:
    problem = make_problem(name)
    drawn = draw(kinds_of(problem)[0], problem, np.random.default_rng(3))
    before = {each: array.copy() for each, array in drawn.inputs.items()}
    found = TaskLauncher(filled(problem, TASKS[name].programs["naive"]), problem)(drawn.inputs)
    outputs = {each: array.get() for each, array in found.items()}
    judged = judge(Ran(outputs, guards_intact=True, inputs_intact=True), drawn)
    assert not isinstance(judged, Mismatch), judged
    for each, array in drawn.inputs.items():
        np.testing.assert_array_equal(array, before[each])


@pytest.mark.parametrize("name", TASKS)
def test_a_librarys_row_is_timed_and_computes_the_task(gpu: None, name: str) -> None:
    pytest.importorskip("torch")
    from benchmarks.measure.task_libraries import LIBRARIES, libraries_us, tensors_of

    problem = make_problem(name)
    drawn = draw(kinds_of(problem)[0], problem, np.random.default_rng(3))
    found, failed = libraries_us(name, drawn.inputs, problem.sizes)
    assert set(failed) <= {"cublaslt"}, failed  # nvmath-python may not be installed.
    assert set(found) == {library for library, tasks in LIBRARIES.items() if name in tasks} - set(failed)
    assert all(us > 0 for us in found.values())
    (output,) = (each for each in problem.operation.operands if each.role in ("output", "inout"))
    for library in found:
        result = LIBRARIES[library][name](tensors_of(drawn.inputs, "cuda"), problem.sizes)().cpu().numpy()
        outputs = {output.name: result.astype(output.array_type(problem.element_type))}
        judged = judge(Ran(outputs, guards_intact=True, inputs_intact=True), drawn)
        assert not isinstance(judged, Mismatch), (library, judged)


def test_the_naive_program_of_a_task_in_place_is_its_baseline(device: "CudaDevice") -> None:
    device_workload = device.open(make_problem("reverse", axes={"n": 2**20}))
    (routine,) = device_workload.baselines().routines
    assert routine.routine == "naive"
    assert isinstance(routine.timing, MeasuredTiming)
    assert routine.timing.cold_us > routine.timing.median_us > 0


def test_large_products_of_references_are_made_on_the_device(device: "CudaDevice") -> None:
    from services.evaluator.cuda import large_products
    from sparsesmith.operations.large_products import multiplied

    numbers = np.random.default_rng(5)
    a, b = numbers.normal(size=(3001, 1024)), numbers.normal(size=(1024, 257))
    found = large_products.multiplied_on_device(a, b)
    if found is None:
        pytest.skip("cuBLAS is not installed")
    np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(multiplied(a, b), found)
