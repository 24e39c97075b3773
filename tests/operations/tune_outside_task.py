"""Run in a process of its own, with the folder `outside_task` on its path: a task of another package, all the way.

Prints one JSON object: outcomes by program, the tuner's best, and the sizes it was tuned for.
"""

import json
from contextlib import closing

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from services.evaluator.vetting import vet_registered
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.tuner import Tuner
from sparsesmith_proto.kernel import Passed, Workload
from tests.evaluator.grading_tools import Evaluator

NAME = "row_softmax"
AXES = {"rows": 61, "cols": 90}


def main() -> None:
    vet_registered()
    operation = operation_named(NAME)
    naive = with_element_type(operation.programs[operation.naive], "float32")
    summed = "col < cols; col++) sum"
    wrong = {
        "no largest": naive.replace("from[col] - largest", "from[col]"),
        "last column left out": naive.replace("col < cols; col++) y[", "col < cols - 1; col++) y["),
        "one entry left out of the sum": naive.replace(f"col = 0; {summed}", f"col = 1; {summed}"),
        "every row as the first": naive.replace("x + (size_t)row * cols", "x"),
        "written into x": naive.replace("y[(size_t)row * cols + col] =", "const_cast<float*>(from)[col] ="),
        "of another task": naive.replace("//@ task row_softmax", "//@ task softmax"),
        "of a format": naive.replace("//@ task row_softmax", "//@ format csr"),
        "for other sizes": f"//@ require cols=91\n{naive}",
    }
    problem = Problem(Workload(operation=NAME, element_type="float32", axes=AXES))
    with (
        closing(device_process(EvaluatorSettings(device="interpreter"))) as process,
        Compiler(1, timeout_s=120) as compiler,
    ):
        evaluator = Evaluator(problem.workload, process.open(problem), compiler)
        baselines = evaluator.workbench.baselines()
        evaluator.workbench.draw()
        told = {name: evaluator.outcome(text) for name, text in {"naive": naive, **wrong}.items()}
        tuner = Tuner(grid_of_problem(problem), AnalyticCost())
        times = {}
        while not tuner.done and (batch := tuner.next_batch(2)):
            for instance in batch:
                outcome = evaluator.outcome(instance.program)
                assert isinstance(outcome, Passed), outcome
                times[f"{instance.family} {instance.parameters}"] = outcome.timing.median_us
                tuner.tell(instance, outcome.timing.median_us)
    print(
        json.dumps(
            {
                "outcomes": {name: outcome.outcome for name, outcome in told.items()},
                "messages": {name: getattr(outcome, "message", "") for name, outcome in told.items()},
                "routines": [routine.routine for routine in baselines.routines],
                "times": times,
                "best_us": tuner.best_us,
            }
        )
    )


if __name__ == "__main__":
    main()
