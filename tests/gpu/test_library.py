"""On a GPU: the library's newer routines, where it has them, among the baselines."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.device import DeviceWorkload
from sparsesmith.cuda.routines import ELL_BLOCK_SIZES, NEEDED
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Baselines, MeasuredTiming
from sparsesmith_proto.message import ElementType
from tests.gpu.programs import make_pattern, make_workload

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

NEWER = {"cusparse_spmvop_alg1", "cusparse_spmvop_alg2", "cusparse_generic_csr"}


def device_workload_of(device: "CudaDevice", element_type: ElementType) -> DeviceWorkload:
    pattern = make_pattern()
    return device.open(Problem(make_workload(pattern, element_type=element_type), pattern))


def names_of(baselines: Baselines) -> set[str]:
    return {routine.routine for routine in baselines.routines}


@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_a_library_that_has_plans_is_compared_by_them_and_planning_is_preparation(
    device: "CudaDevice", element_type: ElementType
) -> None:
    if not device.library.has(NEEDED["plan"]):
        pytest.skip(f"cuSPARSE {device.library.version} makes no plans")
    baselines = device_workload_of(device, element_type).baselines()
    assert {"cusparse_spmvop_alg1", "cusparse_spmvop_alg2"} <= names_of(baselines)
    for routine in baselines.routines:
        assert isinstance(routine.timing, MeasuredTiming)
        if "spmvop" in routine.routine:
            assert routine.preparation_ms > 0


def test_a_plan_is_made_anew_for_the_finals_of_each_batch(device: "CudaDevice") -> None:
    if not device.library.has(NEEDED["plan"]):
        pytest.skip(f"cuSPARSE {device.library.version} makes no plans")
    device_workload = device_workload_of(device, "float32")
    device_workload.baselines()
    for _ in range(2):  # On other values each time, with nothing to compete with.
        assert isinstance(
            device_workload.retime([], device_workload.draw("mixed"), "cusparse_spmvop_alg2").routine, MeasuredTiming
        )


def test_an_older_library_still_serves(device: "CudaDevice", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsesmith.cuda.cusparse.NEW_CALLS_SINCE", (99, 0))
    assert not device.library.has(NEEDED["plan"])
    names = names_of(device_workload_of(device, "float32").baselines())
    assert "cusparse_csr_default" in names
    assert not names & NEWER


def test_answers_say_which_library_it_was(device: "CudaDevice") -> None:
    assert device.description().versions["cusparse"] == device.library.version


@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_blocked_ell_is_a_baseline_of_nearly_dense_matrices_unless_it_rounds(
    device: "CudaDevice", element_type: ElementType
) -> None:
    pattern = make_pattern(512, 512, 0.6)
    workload = make_workload(pattern, operation="spmm", num_dense_cols=32, element_type=element_type)
    found = {name for name in names_of(device.open(Problem(workload, pattern)).baselines()) if "blocked_ell" in name}
    # Where float32 is multiplied as TF32 its results are outside the bound: it is left out.
    assert found == {f"cusparse_blocked_ell{size}_alg1" for size in ELL_BLOCK_SIZES} or element_type == "float32"


def test_half_of_a_symmetric_matrix_is_a_baseline_where_its_values_are_fixed(device: "CudaDevice") -> None:
    if not device.library.has(NEEDED["descriptor"]):
        pytest.skip(f"cuSPARSE {device.library.version} stores no half")
    lower = scipy.sparse.random(2000, 2000, 0.005, "csr", random_state=np.random.default_rng(1))
    matrix = scipy.sparse.csr_matrix(lower + lower.T).sorted_indices()
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, "float32")
    workload = make_workload(pattern, values=values.digest)
    device_workload = device.open(Problem(workload, pattern, values))
    assert "cusparse_generic_lower" in names_of(device_workload.baselines())
    final = device_workload.retime([], device_workload.draw("mixed"), "cusparse_generic_lower").routine
    assert isinstance(final, MeasuredTiming)
