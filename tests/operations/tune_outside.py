"""Run in a process of its own, with the folder `outside` on its path: an operation of another package, all the way.

Prints one JSON object: outcomes by program, the tuner's best, and what was made of it.
"""

import json
from contextlib import closing

import scipy.sparse

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.artifacts.cpp_header import cpp_header
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.program import parse_program
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.tuner import Tuner
from sparsesmith_proto.kernel import Passed
from tests.evaluator.grading_tools import Evaluator, make_workload

NAME = "absolute_product"


def main() -> None:
    operation = operation_named(NAME)
    naive = with_element_type(operation.programs[operation.naive], "float32")
    pattern = pattern_from_scipy(scipy.sparse.random(200, 150, 0.05, random_state=1, format="csr"))
    workload = make_workload(pattern, NAME)
    with (
        closing(device_process(EvaluatorSettings(device="interpreter"))) as process,
        Compiler(1, timeout_s=120) as compiler,
    ):
        evaluator = Evaluator(workload, process.open(Problem(workload, pattern)), compiler)
        baselines = evaluator.workbench.baselines()
        evaluator.workbench.draw()
        signed = naive.replace("(value < 0 ? -value : value)", "value")
        told = {"naive": evaluator.outcome(naive), "signs kept": evaluator.outcome(signed)}
        tuner = Tuner(grid_of(pattern, NAME, "float32"), AnalyticCost())
        times = {}
        while not tuner.done and (batch := tuner.next_batch(2)):
            for instance in batch:
                outcome = evaluator.outcome(instance.program)
                assert isinstance(outcome, Passed), outcome
                times[json.dumps(instance.parameters)] = outcome.timing.median_us
                tuner.tell(instance, outcome.timing.median_us)
        description = process.description()
    header = cpp_header(naive, workload, pattern, description)
    print(
        json.dumps(
            {
                "outcomes": {name: outcome.outcome for name, outcome in told.items()},
                "message": getattr(told["signs kept"], "message", ""),
                "routines": [routine.routine for routine in baselines.routines],
                "tried": len(times),
                "best_us": tuner.best_us,
                "header": f"sparsesmith_{pattern.digest[:12]}_{NAME}_float32" in header,
                "launches": len(parse_program(naive, NAME, "float32").launches),
            }
        )
    )


if __name__ == "__main__":
    main()
