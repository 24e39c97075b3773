"""Stand-ins for the vendor's library where no GPU is: the programs of the operation that everybody writes first.

They are named `plain_*`, never after a library routine, and their times are estimates like every other time there.
"""

from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith_proto.kernel import Workload


def plain_programs(workload: Workload) -> dict[str, str]:
    """Routine name -> kernel program text; the first is what a user gets without choosing."""
    programs = operation_named(workload.operation).programs
    return {name: with_element_type(text, workload.element_type) for name, text in programs.items()}
