"""The operations there are: ours, and those that other packages register by entry point."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points

from sparsesmith.errors import InvalidOption
from sparsesmith.operations.operation import RESERVED_OPERATION_IDS, Operation
from sparsesmith.operations.spmm import SPMM
from sparsesmith.operations.spmv import SPMV

ENTRY_POINTS = "sparsesmith.operations"
"""Each names a value that keeps the Operation protocol."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@cache
def operations() -> Mapping[str, Operation]:
    """By name, ours first. Raises InvalidOption for one that lacks a part or takes another's name or id."""
    registered = [entry.load() for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)]
    return checked_catalogue([SPMV, SPMM, *registered])


def checked_catalogue(listed: Iterable[Operation]) -> Mapping[str, Operation]:
    """By name. Raises InvalidOption naming the operation and the part."""
    found: dict[str, Operation] = {}
    ids: dict[int, str] = {}
    for operation in listed:
        _check_parts(operation)
        if operation.name in found:
            raise _refused(operation.name, "name", operation.name, "a name that no other operation has")
        if operation.header_id in ids:
            raise _refused(operation.name, "header_id", operation.header_id, f"not that of {ids[operation.header_id]}")
        found[operation.name] = operation
        ids[operation.header_id] = operation.name
    return found


def operation_named(name: str) -> Operation:
    """Raises InvalidOption, listing what there is."""
    found = operations().get(name)
    if found is None:
        known = ", ".join(operations())
        raise InvalidOption(
            f"operation {name!r} is unknown (known: {known})", field="operation", value=name, limit=known
        )
    return found


def check_axes(operation: Operation, num_dense_cols: int) -> None:
    """Raises InvalidOption where a request names a size that the operation does not have."""
    if "num_dense_cols" not in operation.axes and num_dense_cols != 1:
        raise InvalidOption(
            f"num_dense_cols is {num_dense_cols}: {operation.name} has one dense column",
            field="num_dense_cols",
            value=num_dense_cols,
            limit=1,
        )


def _check_parts(operation: Operation) -> None:
    for part in ("name", "version", "header_id", "formula", "axes", "operands", "programs", "naive"):
        if not hasattr(operation, part):
            raise _refused(getattr(operation, "name", operation), part, None, "to be there")
    if not _NAME.fullmatch(operation.name):
        raise _refused(operation.name, "name", operation.name, _NAME.pattern)
    if not 0 <= operation.header_id < RESERVED_OPERATION_IDS:
        raise _refused(operation.name, "header_id", operation.header_id, f"0..{RESERVED_OPERATION_IDS - 1}")
    if not any(operand.role in ("output", "inout") for operand in operation.operands):
        raise _refused(operation.name, "operands", len(operation.operands), "an output among them")
    if operation.naive not in operation.programs:
        raise _refused(
            operation.name, "naive", operation.naive, f"one of the programs ({', '.join(operation.programs)})"
        )


def _refused(name: object, part: str, value: object, limit: str) -> InvalidOption:
    return InvalidOption(
        f"operation {name}: {part} is {value!r}, needed: {limit}", field=part, value=value, limit=limit
    )
