"""Fixed values on a GPU: compressed programs pass with the request's values and no others."""

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.isolation.sandbox import DeviceProcess
from sparsesmith.artifacts.launcher import program_launcher
from sparsesmith.errors import InvalidMatrix
from sparsesmith.families import propose
from sparsesmith.families.fixed.proposal import propose_fixed
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import MeasuredTiming, Passed, Rejected, Workload
from sparsesmith_proto.message import ElementType
from tests.gpu.programs import grade

pytestmark = pytest.mark.gpu


def stencil(side: int = 150) -> scipy.sparse.csr_matrix:
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    one = scipy.sparse.identity(side)
    return scipy.sparse.csr_matrix(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))


def ones() -> scipy.sparse.csr_matrix:
    graph = scipy.sparse.random(3000, 2500, 0.01, random_state=1, format="csr")
    graph.data[:] = 1
    return graph


def matrix_of(name: str, element_type: ElementType) -> tuple[Pattern, FixedValues, Workload]:
    matrix = {"stencil": stencil, "ones": ones}[name]()
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, element_type)
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type=element_type, values=values.digest)
    return pattern, values, workload


@pytest.mark.parametrize("name", ["stencil", "ones"])
@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_proposals_for_fixed_values_pass_and_one_of_each_kind_is_refused_for_any(
    name: str, element_type: ElementType, sandbox: DeviceProcess
) -> None:
    pattern, values, workload = matrix_of(name, element_type)
    general = propose(pattern, "spmv", element_type, 1, limit=12)
    instances = propose_fixed(pattern, values, "spmv", element_type, general, limit=36)
    workbench = sandbox.open(Problem(workload, pattern, values))
    for instance in instances:
        outcome = grade(instance.program, workload, workbench)
        assert isinstance(outcome, Passed), (instance.family, instance.parameters, outcome)
        assert isinstance(outcome.timing, MeasuredTiming)
        assert outcome.num_inputs == 5
    free = workload.model_copy(update={"values": None})
    workbench = sandbox.open(Problem(free, pattern))
    stored = {
        text.split("\n")[1]: text for text in (instance.program for instance in instances) if "//@ values" in text
    }
    assert stored
    for text in stored.values():
        assert isinstance(grade(text, free, workbench), Rejected)


@pytest.mark.parametrize("scale", [1e-38, 1e30])
def test_values_at_the_ends_of_the_range_are_judged_fairly(scale: float, sandbox: DeviceProcess) -> None:
    matrix = stencil(40) * scale
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, "float32")
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32", values=values.digest)
    general = propose(pattern, "spmv", "float32", 1, limit=2)
    workbench = sandbox.open(Problem(workload, pattern, values))
    for instance in general:
        assert isinstance(outcome := grade(instance.program, workload, workbench), Passed), outcome


def test_a_loader_multiplies_by_the_values_it_was_tuned_with_and_no_others(gpu: None) -> None:
    matrix = stencil()
    pattern, values, workload = matrix_of("stencil", "float32")
    instance = propose_fixed(pattern, values, "spmv", "float32", (), limit=1)[0]
    kernel = program_launcher(instance.program, matrix, workload)
    x = np.random.default_rng(0).uniform(-1, 1, matrix.shape[1]).astype(np.float32)
    np.testing.assert_allclose(kernel(x), matrix @ x.astype(np.float64), atol=1e-5)
    kernel.update_values(matrix.copy())
    np.testing.assert_allclose(kernel(x), matrix @ x.astype(np.float64), atol=1e-5)
    with pytest.raises(InvalidMatrix):
        kernel.update_values(matrix * 2)
