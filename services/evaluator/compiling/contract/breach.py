"""What machine code may not do, whatever its text looked like: found by the compiler's own output, before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from services.evaluator.compiling.contract.facts import KernelFacts, PtxFacts
from sparsesmith.formats.format import Argument
from sparsesmith.program.program import KernelProgram

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled

MAX_STACK_BYTES = 32 * 1024
"""Of a thread. The driver reserves a frame for every thread that a GPU can hold: this is 9 GB of an H200."""

_STATE = "variables in global memory outlive a launch; use __constant__ for tables and scratch for intermediate results"
_READ_ONLY = "a kernel writes to its output and to scratch only, the compiled program also writes to"
_EARLY = (
    "a kernel with dependency=programmatic executes griddepcontrol.wait, on every path, "
    "before it touches x, y or scratch"
)
_CONSTANT = "a load that counts as constant may move up past griddepcontrol.wait: leave __restrict__ and __ldg off"
_MAX_NAMES = 4
_UNORDERED = "deterministic=true: the order in which threads come to it decides the last bits of the result"
_POSITION = re.compile(r"argument (\d+)")


def breach(program: KernelProgram, binary: Compiled, *, deterministic: bool = False) -> str:
    """Why a compiled program is outside the contract, with the line; empty where it is within.

    `deterministic`: whether equal inputs must give equal bits.
    """
    facts = binary.facts
    if facts.unreadable:
        return f"the compiled program is outside the language that is checked: {facts.unreadable}"
    if facts.persistent_variables:
        return f"{_STATE}: {', '.join(facts.persistent_variables[:_MAX_NAMES])}"
    if facts.forbidden_instruction:
        return f"the compiled program uses {facts.forbidden_instruction}"
    if facts.has_unbounded_stack:
        return "the stack has no bound that the compiler can see: kernels may not recurse or call through pointers"
    stack_bytes = max((used.local_bytes for used in binary.resources.values()), default=0)
    if stack_bytes > MAX_STACK_BYTES:
        return f"a thread's stack frame has {stack_bytes} bytes: at most {MAX_STACK_BYTES}"
    roles = dict(enumerate(program.signature))
    changed = list(dict.fromkeys(_stored_to(program, facts, roles)))
    if changed:
        return f"{_READ_ONLY}: {', '.join(changed[:_MAX_NAMES])}"
    unordered = _unordered(program, facts) if deterministic else ""
    return _fault(program, facts, roles) or _early_use(program, facts, roles) or unordered


def _launched(program: KernelProgram, facts: PtxFacts) -> Iterator[KernelFacts]:
    for kernel in dict.fromkeys(launch.kernel for launch in program.launches):
        yield facts.kernels.get(kernel, KernelFacts())


def _stored_to(program: KernelProgram, facts: PtxFacts, roles: Mapping[int, Argument]) -> Iterator[str]:
    """What is for reading only, and written to by the machine code: arguments and constants, with the line."""
    for kernel in _launched(program, facts):
        for position, line in kernel.written:
            if position in roles and roles[position].role in ("index", "values", "input"):
                yield f"{roles[position].name} (line {line})"
        yield from (f"{name} (line {line})" for name, line in kernel.written_constants)


def _unordered(program: KernelProgram, facts: PtxFacts) -> str:
    first = next((found for kernel in _launched(program, facts) for found in kernel.unordered), None)
    return "" if first is None else f"line {first[1]}: {first[0]}: {_UNORDERED}"


def _fault(program: KernelProgram, facts: PtxFacts, roles: Mapping[int, Argument]) -> str:
    """The first thing done with addresses that no kernel may, arguments by their names."""
    first = next((fault for kernel in _launched(program, facts) for fault in kernel.faults), "")
    return _POSITION.sub(lambda found: roles[int(found[1])].name if int(found[1]) in roles else found[0], first)


def _early_use(program: KernelProgram, facts: PtxFacts, roles: Mapping[int, Argument]) -> str:
    """A vector or scratch that the first launch touches before it has waited for what ran before."""
    first = program.launches[0]
    if first.dependency != "programmatic":
        return ""
    for position, line, is_constant in facts.kernels.get(first.kernel, KernelFacts()).early:
        if position in roles and roles[position].role in ("input", "inout", "output", "scratch"):
            return f"line {line}: {roles[position].name} is touched too early: {_CONSTANT if is_constant else _EARLY}"
    return ""
