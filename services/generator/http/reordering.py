"""With what `reorder` goes together: a matrix whose rows and columns some family of programs may number anew."""

from typing import NoReturn

from sparsesmith.errors import InvalidOption
from sparsesmith.families import FAMILIES
from sparsesmith.operations import Problem
from sparsesmith_proto.api import TuningOptions

FIELD = "reorder"
OF_PROGRAMS = "a program of your own names its format: write numbering=breadth or numbering=popular in its format line"


def check_reorder(options: TuningOptions, problem: Problem) -> None:
    """Raises InvalidOption where rows and columns may be reordered and no program could make use of it."""
    if options.reorder == "keep":
        return
    if problem.matrix is None:
        _refuse("a task has no matrix whose rows and columns could be; leave it out")
    if options.transposed != "no" and options.transposed_storage == "shared":
        _refuse("A^T is multiplied from A as it is stored (transposed_storage=shared); send transposed_storage=copy")
    operation, element_type = problem.workload.operation, problem.workload.element_type
    reordering = [family for family in FAMILIES.values() if family.reorders]
    operations = sorted({family.operation for family in reordering})
    if operation not in operations:
        _refuse(f"no family of programs for {operation} does that, only for {', '.join(operations)}; leave it out")
    if not any(element_type in family.element_types for family in reordering if family.operation == operation):
        types = sorted({each for family in reordering for each in family.element_types})
        _refuse(f"no family of programs does that for {element_type}, only for {', '.join(types)}; leave it out")
    if options.search == "sample":
        _refuse("search=sample asks the policy alone, which is told nothing of it; send search=auto or families")


def refuse_for_programs() -> NoReturn:
    """Raises InvalidOption: of a program that a user sends nothing is chosen."""
    raise InvalidOption(f"{FIELD}: {OF_PROGRAMS}", field=FIELD, limit="no such field")


def _refuse(reason: str) -> NoReturn:
    raise InvalidOption(f"{FIELD} is allowed: {reason}", field=FIELD, value="allowed", limit="keep")
