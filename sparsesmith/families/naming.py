"""A family's program with what follows from the matrix by name (`//@ let`), as the policy writes it."""

from collections.abc import Mapping

from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.formats.format import ParameterValue
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import comes_to
from sparsesmith_proto.message import ElementType


def named_program(
    name: str,
    parameters: Mapping[str, ParameterValue],
    plain: str,
    circumstances: Circumstances,
    element_type: ElementType,
) -> str | None:
    """The open text of what the family `name` wrote as `plain`, once it is seen to come to that very program; `plain`
    itself where the family names nothing, or is not known today. None: facts give other numbers today."""
    family, columns = FAMILIES.get(name), circumstances.num_dense_cols
    if family is None or not family.has_facts or not family.accepts(parameters, element_type, columns):
        return plain
    opened = family.render(parameters, element_type, columns, is_open=True)
    return opened if comes_to(opened, plain, circumstances, family.operation, element_type) else None
