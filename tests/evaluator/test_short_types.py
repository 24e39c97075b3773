"""float16 and bfloat16 through the whole evaluator without a GPU: baselines, families, sums that are too narrow."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import scipy.sparse

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.elements import ELEMENTS, WIDE_TYPES
from sparsesmith.errors import InvalidOption
from sparsesmith.families import FAMILIES, propose
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations.problem import Problem
from sparsesmith_proto.kernel import Mismatch, Passed
from sparsesmith_proto.message import ElementType, Operation
from tests.evaluator.grading_tools import Evaluator, make_workload

SHORT_TYPES: tuple[ElementType, ...] = ("float16", "bfloat16")
WORKLOADS: list[tuple[Operation, int]] = [("spmv", 1), ("spmm", 5)]
SERVING = {
    "spmv": {"csr_scalar", "csr_vector", "csr_vector_persistent", "bsr_rows"},
    "spmm": {"spmm_rows", "spmm_bsr"},
}


def blocks() -> Pattern:
    """Dense blocks of three by three in odd places, more rows than a persistent grid needs."""
    ones = scipy.sparse.csr_matrix([[1.0] * 3] * 3)
    return pattern_from_scipy(scipy.sparse.kron(scipy.sparse.random(1400, 40, 0.03, random_state=1), ones, "csr"))


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with closing(device_process(EvaluatorSettings(device="interpreter"))) as made:
        yield made


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize(("operation", "num_dense_cols"), WORKLOADS)
def test_every_family_that_serves_a_short_type_passes_and_narrow_sums_do_not(
    operation: Operation,
    num_dense_cols: int,
    element_type: ElementType,
    process: DeviceProcess,
    compiler: Compiler,
) -> None:
    pattern = blocks()
    workload = make_workload(pattern, operation, element_type, num_dense_cols)
    evaluator = Evaluator(workload, process.open(Problem(workload, pattern)), compiler)
    baselines = evaluator.workbench.baselines()
    assert [each.routine for each in baselines.routines] == ["plain_csr_vector", "plain_csr_scalar"]
    evaluator.workbench.draw()
    prospects = prospects_of(work_of(pattern, element_type, num_dense_cols), operation, element_type)
    first = {entry.family.name: entry.instance(element_type, num_dense_cols).program for entry in reversed(prospects)}
    assert first.keys() == SERVING[operation]
    outcomes = {name: evaluator.outcome(program) for name, program in first.items()}
    assert {name: each.outcome for name, each in outcomes.items()} == dict.fromkeys(first, "passed"), outcomes
    assert all(isinstance(each, Passed) and each.worst_error > 0 for each in outcomes.values())
    plain = first["csr_scalar" if operation == "spmv" else "spmm_rows"]
    narrow = plain.replace("float sum", f"{ELEMENTS[element_type].c_type} sum")
    assert narrow != plain
    assert isinstance(evaluator.outcome(narrow), Mismatch)


@pytest.mark.timeout(300)
def test_a_program_on_tensor_cores_passes(process: DeviceProcess, compiler: Compiler) -> None:
    ones = scipy.sparse.csr_matrix([[1.0] * 16] * 16)
    pattern = pattern_from_scipy(scipy.sparse.kron(scipy.sparse.random(9, 12, 0.3, random_state=1), ones, "csr"))
    workload = make_workload(pattern, "spmm", "bfloat16", 16)
    evaluator = Evaluator(workload, process.open(Problem(workload, pattern)), compiler)
    evaluator.workbench.baselines()
    evaluator.workbench.draw()
    proposed = propose(pattern, "spmm", "bfloat16", 16, limit=400)
    outcome = evaluator.outcome(next(each for each in proposed if each.family == "spmm_bsr_tensor").program)
    assert isinstance(outcome, Passed), outcome


def test_a_family_that_does_not_serve_a_short_type_says_so_by_name() -> None:
    family = next(each for each in FAMILIES.values() if each.element_types == WIDE_TYPES)
    choice = {name: spec.default for name, spec in family.parameters.items()}
    with pytest.raises(InvalidOption, match=f"family {family.name} does not accept .* for float16") as caught:
        family.render(choice, "float16")
    assert str(caught.value.limit).endswith("element types: float32, float64")
