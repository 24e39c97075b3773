"""Where parameters and shared arrays are placed, and which names a function uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.evaluator.interpreter.ptx.decoding.kernel import SharedArray
from services.evaluator.interpreter.ptx.parsing import Address, Function, Group, Operand, PtxText, Symbol, Variable

REDZONE_BYTES = 32
"""Unusable bytes between shared arrays, so that running over the end of one is found."""
_SHARED_ALIGNMENT = 16
_DYNAMIC_ALIGNMENT = 128


def aligned(value: int, alignment: int) -> int:
    """The next multiple of an alignment."""
    return (value + alignment - 1) // alignment * alignment


def place_parameters(parameters: Sequence[Variable]) -> tuple[tuple[int, ...], int]:
    """Offsets of the parameters and the size of the parameter block."""
    offsets, end = [], 0
    for parameter in parameters:
        end = aligned(end, parameter.alignment)
        offsets.append(end)
        end += parameter.size_bytes
    return tuple(offsets), aligned(end, 8)


@dataclass(frozen=True)
class SharedPlacement:
    """Static shared arrays, the names of dynamic ones, and where dynamic shared memory begins."""

    arrays: tuple[SharedArray, ...]
    dynamic_names: frozenset[str]
    static_bytes: int
    dynamic_offset: int

    def address(self, name: str) -> int | None:
        """Offset of a shared variable in the block's shared memory, or None if there is no such variable."""
        if name in self.dynamic_names:
            return self.dynamic_offset
        return next((array.offset for array in self.arrays if array.name == name), None)


def place_shared(text: PtxText, entry: Function) -> SharedPlacement:
    """Place the shared variables that a kernel and the functions it calls use."""
    reachable = _reachable_functions(text, entry)
    named = {symbol for function in reachable for symbol in named_symbols(function)}
    declared = [variable for variable in text.variables if variable.name in named]
    declared += [variable for function in reachable for variable in function.variables]
    shared = [variable for variable in declared if variable.space == "shared"]
    arrays, end, compact_end = [], 0, 0
    for variable in shared:
        if not variable.is_external:
            offset = aligned(end, max(_SHARED_ALIGNMENT, variable.alignment))
            arrays.append(SharedArray(variable.name, offset, variable.size_bytes))
            end = offset + variable.size_bytes + REDZONE_BYTES
            compact_end = aligned(compact_end, variable.alignment) + variable.size_bytes
    dynamic = frozenset(variable.name for variable in shared if variable.is_external)
    return SharedPlacement(tuple(arrays), dynamic, compact_end, aligned(end, _DYNAMIC_ALIGNMENT))


def _reachable_functions(text: PtxText, entry: Function) -> list[Function]:
    found, pending = {entry.name: entry}, [entry]
    while pending:
        for symbol in sorted(named_symbols(pending.pop())):
            function = text.functions.get(symbol)
            if function is not None and function.name not in found:
                found[function.name] = function
                pending.append(function)
    return list(found.values())


def named_symbols(function: Function) -> set[str]:
    """Names of variables, functions and labels in the operands of a function."""
    names: set[str] = set()
    pending: list[Operand | None] = [operand for i in function.instructions for operand in i.operands]
    while pending:
        operand = pending.pop()
        match operand:
            case Symbol():
                names.add(operand.name)
            case Address() if isinstance(operand.base, Symbol):
                names.add(operand.base.name)
            case Group():
                pending.extend(operand.elements)
            case _:
                pass
    return names
