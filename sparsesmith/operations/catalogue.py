"""The operations there are: ours, those that other packages register by entry point, and imported tasks."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import get_args

from sparsesmith.errors import InvalidOption
from sparsesmith.operations.draws import GENERAL
from sparsesmith.operations.imported.folder import imported_tasks, is_imported
from sparsesmith.operations.operand import Dtype
from sparsesmith.operations.operation import (
    RESERVED_OPERATION_IDS,
    Operation,
    Shaping,
    adverse_draws,
    derived_sizes,
    task_size_names,
    task_sizes,
)
from sparsesmith.operations.scaled import check_scaling
from sparsesmith.operations.sddmm import SDDMM
from sparsesmith.operations.spmm import SPMM
from sparsesmith.operations.spmv import SPMV
from sparsesmith.operations.spmv_t import SPMV_T
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import check_element_type
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Axes

ENTRY_POINTS = "sparsesmith.operations"
"""Each names a value that keeps the Operation protocol."""

ON_MATRICES: tuple[Operation, ...] = (SPMV, SPMM, SPMV_T, SDDMM)
"""In the order of their ids."""

IMPORTED = "imported"
"""The folder beside this module that is no operation."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PARTS = (
    *("name", "version", "header_id", "formula", "takes_matrix", "axes", "operands"),
    *("sums_products", "draws", "expect", "floor", "programs", "naive", "trial"),
)
_MATRIX_SIZES = ("num_rows", "num_cols", "nnz")
_DENSE_COLS = "num_dense_cols"
"""The one axis that has a field of its own in requests."""


@cache
def operations() -> Mapping[str, Operation]:
    """By name, ours first. Raises InvalidOption for one that lacks a part or takes another's name or id."""
    found = checked_catalogue([*ON_MATRICES, *our_tasks()])
    for entry in registrations():
        found = _with_registered(found, entry)
    return checked_catalogue([*found.values(), *imported_tasks()])


def our_tasks() -> list[Task]:
    """`OPERATION` of every folder beside this module that is not of an operation on a matrix, by name."""
    package = "sparsesmith.operations"
    folders = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]) if module.ispkg)
    named = (name for name in folders if name not in {IMPORTED, *(each.name for each in ON_MATRICES)})
    return [import_module(f"{package}.{name}").OPERATION for name in named]


def registrations() -> list[EntryPoint]:
    """What other packages register."""
    return sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)


def folder_of(entry: EntryPoint) -> str:
    """Where a registered operation lies; its module's name where that is not found."""
    spec = find_spec(entry.module)
    return entry.module if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def _with_registered(found: Mapping[str, Operation], entry: EntryPoint) -> Mapping[str, Operation]:
    try:
        operation = entry.load()
    except (ImportError, AttributeError, TypeError) as error:
        reason = f"operation {entry.name}: {entry.value} cannot be loaded: {error} (registered in {folder_of(entry)})"
        raise InvalidOption(reason, field="operation", value=entry.value) from error
    try:
        return checked_catalogue([*found.values(), operation])
    except InvalidOption as error:
        reason = f"{error.message} (registered in {folder_of(entry)})"
        raise InvalidOption(reason, field=error.field, value=error.value, limit=error.limit) from error


def checked_catalogue(listed: Iterable[Operation]) -> Mapping[str, Operation]:
    """By name. Raises InvalidOption naming the operation and the part."""
    found: dict[str, Operation] = {}
    ids: dict[int, str] = {}
    for operation in listed:
        _check_parts(operation)
        _check_operands(operation)
        _check_adverse(operation)
        if operation.name in found:
            raise _refused(operation, "name", operation.name, "a name that no other operation has")
        if operation.header_id is not None:
            if operation.header_id in ids:
                raise _refused(operation, "header_id", operation.header_id, f"not that of {ids[operation.header_id]}")
            ids[operation.header_id] = operation.name
        found[operation.name] = operation
    return found


def is_task_name(name: str) -> bool:
    """Whether an operation may be called so."""
    return _NAME.fullmatch(name) is not None


def operation_named(name: str, field: str = "operation") -> Operation:
    """Raises InvalidOption, listing what there is and naming the nearest."""
    found = operations().get(name)
    if found is None and is_task_name(name) and is_imported(name):
        operations.cache_clear()  # It was imported, or posted, since.
        found = operations().get(name)
    if found is None:
        known, near = ", ".join(operations()), get_close_matches(name, operations(), n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise InvalidOption(f"{field} {name!r} is unknown (known: {known}){hint}", field=field, value=name, limit=known)
    return found


def check_axes(operation: Operation, num_dense_cols: int, axes: Axes | None = None) -> None:
    """Raises InvalidOption where a request names a size that the operation does not have, or leaves one out."""
    if _DENSE_COLS not in operation.axes and num_dense_cols != 1:
        has = "one dense column" if operation.takes_matrix else "no dense columns"
        raise InvalidOption(
            f"num_dense_cols is {num_dense_cols}: {operation.name} has {has}",
            field="num_dense_cols",
            value=num_dense_cols,
            limit=1,
        )
    named = [name for name in operation.axes if name != _DENSE_COLS]
    known = ", ".join(named) or "none"
    for name, size in (axes or {}).items():
        if name not in named:
            raise InvalidOption(
                f"axes.{name}: {operation.name} has no such axis (it has: {known})",
                field=f"axes.{name}",
                value=size,
                limit=known,
            )
    for name in named:
        if name not in (axes or {}):
            raise InvalidOption(
                f"axes.{name} is missing: {operation.name} has the axes {known}", field=f"axes.{name}", limit=known
            )
    if isinstance(operation, Shaping):
        _check_shapes(operation, axes or {})


def _check_shapes(operation: Operation, axes: Axes) -> None:
    """Raises InvalidOption where a size that follows from the axes would be empty, or they contradict each other."""
    given = ", ".join(f"{name}={axes[name]}" for name in operation.axes)
    for name in derived_sizes(operation):
        if (size := task_sizes(operation, axes)[name]) < 1:
            raise InvalidOption(
                f"axes: with {given} {operation.name} would have {name}={size}: at least 1",
                field="axes",
                value=size,
                limit=1,
            )
    assert isinstance(operation, Shaping)
    for told, holds in operation.constraints.items():
        if not holds(axes):
            raise InvalidOption(f"axes: {given}: {operation.name} needs {told}", field="axes", value=given, limit=told)


def check_workload(workload: Workload) -> None:
    """Raises InvalidOption for one that its operation does not know."""
    operation = operation_named(workload.operation)
    if operation.takes_matrix != (workload.pattern is not None):
        needed = "a matrix" if operation.takes_matrix else "no matrix"
        raise InvalidOption(f"pattern: {operation.name} takes {needed}", field="pattern", limit=needed)
    check_element_type(operation, workload.element_type)
    check_axes(operation, workload.num_dense_cols, workload.axes)
    if workload.alpha_beta:
        check_scaling(operation, workload.element_type)


def _check_parts(operation: Operation) -> None:
    for part in _PARTS:
        if not hasattr(operation, part):
            raise _refused(operation, part, None, "to be there")
    if not _NAME.fullmatch(operation.name):
        raise _refused(operation, "name", operation.name, _NAME.pattern)
    _check_id(operation)
    if operation.programs and operation.naive not in operation.programs:
        raise _refused(operation, "naive", operation.naive, f"one of the programs ({', '.join(operation.programs)})")


def _check_id(operation: Operation) -> None:
    if operation.header_id is None:
        if operation.takes_matrix:
            raise _refused(operation, "header_id", None, f"0..{RESERVED_OPERATION_IDS - 1}")
    elif not 0 <= operation.header_id < RESERVED_OPERATION_IDS:
        raise _refused(operation, "header_id", operation.header_id, f"0..{RESERVED_OPERATION_IDS - 1}")


def _check_operands(operation: Operation) -> None:
    """An output, names that differ, shapes of axes that there are, types that there are."""
    if not any(operand.role in ("output", "inout") for operand in operation.operands):
        raise _refused(operation, "operands", len(operation.operands), "an output among them")
    axes = [*(_MATRIX_SIZES if operation.takes_matrix else ()), *task_size_names(operation)]
    sizes = {*axes, _DENSE_COLS} if operation.takes_matrix else {*axes}
    for axis in task_size_names(operation):
        if not _NAME.fullmatch(axis) or axes.count(axis) > 1 or axis == "num_sms":
            raise _refused(operation, "axes", axis, "lower-case names that differ and that nothing else has")
    names = [operand.name for operand in operation.operands]
    for operand in operation.operands:
        if names.count(operand.name) > 1:
            raise _refused(operation, "operands", operand.name, "names that differ")
        if operand.role != "size" and not set(operand.axes) <= sizes:
            raise _refused(
                operation, f"operands.{operand.name}", operand.axes, f"axes among {', '.join(sorted(sizes))}"
            )
        if operand.dtype not in get_args(Dtype):
            raise _refused(operation, f"operands.{operand.name}", operand.dtype, f"one of {', '.join(get_args(Dtype))}")


def _check_adverse(operation: Operation) -> None:
    """Kinds that are drawn, beside the first, which is timed anyway."""
    others = tuple(operation.draws or GENERAL)[1:]
    for kind in adverse_draws(operation):
        if kind not in others:
            raise _refused(operation, "adverse", kind, f"one of its draws but the first ({', '.join(others)})")


def _refused(operation: Operation, part: str, value: object, limit: str) -> InvalidOption:
    return InvalidOption(
        f"operation {getattr(operation, 'name', operation)}: {part} is {value!r}, needed: {limit}",
        field=part,
        value=value,
        limit=limit,
    )
