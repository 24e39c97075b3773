"""Stand-ins for the vendor's library where no GPU is: the programs of the operation that everybody writes first.

They are named `plain_*`, never after a library routine, and their times are estimates like every other time there.
"""

from collections.abc import Mapping

from services.evaluator.candidates import baseline_text
from services.evaluator.interpreter.machine.launching import NUM_MULTIPROCESSORS
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith_proto.kernel import Workload


def plain_programs(workload: Workload) -> Mapping[str, str]:
    """Routine name -> kernel program text; the first is what a user gets without choosing. Of a task one alone: its
    others are candidates."""
    operation = operation_named(workload.operation)
    if operation.takes_matrix:
        return programs_for(operation, workload.element_type)
    return dict([baseline_text(workload, NUM_MULTIPROCESSORS)])
