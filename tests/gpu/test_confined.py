"""On a GPU: the device works in a process that the kernel holds, all that an evaluator asks of it included."""

from contextlib import closing

import pytest

from services.evaluator.confinement.profile import available
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Passed
from tests.gpu.programs import GOOD, grade, make_pattern, make_workload
from tests.operations.checked import make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("gpu"),
    pytest.mark.skipif(not available().is_whole, reason=f"this kernel: {available().describe()}"),
]


def test_a_device_s_process_is_held_and_does_its_work() -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    with closing(device_process(EvaluatorSettings(device="cuda", confinement="on"))) as process:
        workbench = process.open(Problem(workload, pattern))
        assert workbench.baselines().routines
        outcome = grade(GOOD, workload, workbench)
        assert isinstance(outcome, Passed), outcome
        # Its baseline is a program of ours, which this process compiles itself.
        assert process.open(make_problem("reverse")).baselines().routines
