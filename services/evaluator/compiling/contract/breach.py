"""What machine code may not do, whatever its text looked like: found by the compiler's own output, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparsesmith.program.program import KernelProgram
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.kernel import Workload

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled

MAX_STACK_BYTES = 32 * 1024
"""Of a thread. The driver reserves a frame for every thread that a GPU can hold: this is 9 GB of an H200."""

UNBOUNDED_STACK = "cannot be statically determined"
"""Some assemblers' words for recursion and calls through pointers."""

_STATE = (
    "variables in global memory outlive a launch; "
    "use __constant__ for tables and the format's scratch for intermediate results"
)
_READ_ONLY = "a kernel writes to its output and the format's scratch only, the compiled program also writes to"
_MAX_NAMES = 4


def breach(program: KernelProgram, binary: Compiled, workload: Workload) -> str:
    """Why a compiled program is outside the contract; empty where it is within."""
    state = binary.facts.persistent_variables
    if state:
        return f"{_STATE}: {', '.join(state[:_MAX_NAMES])}"
    if binary.facts.forbidden_instruction:
        return f"the compiled program uses {binary.facts.forbidden_instruction}"
    if UNBOUNDED_STACK in binary.log or binary.facts.has_unbounded_stack:
        return "the stack has no bound that the compiler can see: kernels may not recurse or call through pointers"
    stack_bytes = max((used.local_bytes for used in binary.resources.values()), default=0)
    if stack_bytes > MAX_STACK_BYTES:
        return f"a thread's stack frame has {stack_bytes} bytes: at most {MAX_STACK_BYTES}"
    changed = [*_stored_to(program, binary, workload), *binary.facts.written_constants]
    return f"{_READ_ONLY}: {', '.join(changed)}" if changed else ""


def _stored_to(program: KernelProgram, binary: Compiled, workload: Workload) -> list[str]:
    """Arguments for reading only that the machine code writes to."""
    signature = signature_of(program.format, program.parameters, workload.operation, workload.element_type)
    kernels = {launch.kernel for launch in program.launches}
    written = {position for kernel in kernels for position in binary.facts.written_parameters.get(kernel, ())}
    return [
        argument.name
        for position, argument in enumerate(signature)
        if position in written and argument.role in ("index", "values", "input")
    ]
