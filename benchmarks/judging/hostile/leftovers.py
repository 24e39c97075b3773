"""Where a compiled program could find what a launch before it left: what rests on no such place repeats its work."""

from collections.abc import Iterator

from services.evaluator.compiling.contract.flow.addresses import AddressFlow
from services.evaluator.compiling.contract.flow.opcodes import kind_of
from services.evaluator.compiling.contract.flow.steps import Use
from services.evaluator.compiling.contract.flow.values import VARIABLE, Form, is_tangled
from services.evaluator.ptx import Module, read_module
from sparsesmith.formats.format import Role
from sparsesmith.program.program import KernelProgram

_GIVEN: tuple[Role, ...] = ("index", "values", "input")
"""What a kernel may only read."""
_ONE_WAY = ("st", "red")
"""Stores that give nothing back."""


def leftovers(program: KernelProgram, ptx: str) -> str:
    """The first thing in a program by which a launch could know of the one before; empty where there is nothing.

    For a program without a `breach`: its registers are set before they are read, its constants stay as they are and it
    reads no clock. If it also has no memory of its own, gets nothing from other threads and loads from its inputs
    alone, a launch is a function of its arguments: timed ones do what checked ones do. What this does not see: a load
    beyond an input's end (the interpreter does).
    """
    module = read_module(ptx)
    flow = AddressFlow(module)
    return next(
        (found for launch in program.launches for found in _of_kernel(program, module, flow, launch.kernel)), ""
    )


def _of_kernel(program: KernelProgram, module: Module, flow: AddressFlow, kernel: str) -> Iterator[str]:
    yield from (f"{each.space} memory ({each.name})" for each in module.all_variables if _is_own(each.space))
    given = {
        f"{kernel}/{name}"
        for name, argument in zip(module.functions[kernel].parameter_names, program.signature, strict=False)
        if argument.role in _GIVEN
    }
    tables = {f"{VARIABLE}{each.name}" for each in module.all_variables if not _is_own(each.space)}
    for name in flow.reached(kernel):
        for instruction in module.functions[name].instructions:
            if _takes_from_others(instruction.opcode):
                yield f"line {instruction.line}: '{'.'.join(instruction.opcode)}'"
        for use in flow.steps_of(name).uses:
            if use.what == "load" and not _is_given(flow, use, given | tables):
                yield f"line {use.instruction.line}: a load from elsewhere than its inputs"


def _is_own(space: str) -> bool:
    """Whether a variable's contents are its kernel's to write."""
    return space in ("shared", "local")


def _takes_from_others(opcode: tuple[str, ...]) -> bool:
    """Atomic operations and copies; values of other threads, whose registers need not be set."""
    kind = kind_of(opcode)
    return (kind == "stores" and opcode[0] not in _ONE_WAY) or kind in ("copies", None) or "sync" in opcode


def _is_given(flow: AddressFlow, use: Use, places: set[str]) -> bool:
    value = flow.value(use.place)
    return bool(value) and all(_origin(form) in places for form in value)


def _origin(form: Form) -> str:
    """The one thing that an address is in; empty where it may be elsewhere."""
    return next(iter(form))[0] if len(form) == 1 and not is_tangled(form) else ""
