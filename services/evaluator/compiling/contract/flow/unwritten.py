"""Memory that is read though nothing has been there: the stack before any store to it, shared memory that nothing
in the kernel stores to, constants that change.

What this does not see: a stack or a shared variable of which some other part was written (the interpreter looks at each
word), and shared memory that is read before it is written (there the interpreter looks, too).
"""

from collections.abc import Iterator, Mapping

from services.evaluator.compiling.contract.flow.addresses import AddressFlow
from services.evaluator.compiling.contract.flow.graph import edges_of
from services.evaluator.compiling.contract.flow.steps import Use
from services.evaluator.compiling.contract.flow.values import VARIABLE, is_tangled
from services.evaluator.compiling.contract.flow.waits import uses_by_instruction
from services.evaluator.ptx import Function, Module


def unwritten_reads(module: Module, flow: AddressFlow, name: str) -> Iterator[str]:
    """Loads of a function from local variables that no path has stored anything to before."""
    function = module.functions[name]
    local = {f"{VARIABLE}{each.name}" for each in function.variables if each.space == "local"}
    if not local:
        return
    uses = uses_by_instruction(flow.steps_of(name).uses)
    for index, written in _written_before(function, flow, uses, local).items():
        for use in uses.get(index, ()):
            if use.what == "load" and (origin := _variable(flow, use)) in local - written:
                yield (
                    f"line {use.instruction.line}: local memory is read that nothing has written before "
                    f"({origin.lstrip(VARIABLE)}): it holds what a thread before left there; initialise it"
                )


def never_filled(module: Module, flow: AddressFlow, kernel: str) -> Iterator[str]:
    """Loads from shared variables that nothing stores to in the whole kernel, whatever the order of its threads."""
    shared = {f"{VARIABLE}{each.name}" for each in module.all_variables if each.space == "shared"}
    uses = [use for name in flow.reached(kernel) for use in flow.steps_of(name).uses]
    stored = {_variable(flow, use) for use in uses if use.what == "store" and use.space in ("", "shared")}
    if not shared or "" in stored:
        return
    for use in uses:
        if use.what == "load" and (origin := _variable(flow, use)) in shared - stored:
            yield (
                f"line {use.instruction.line}: shared memory is read that nothing stores to "
                f"({origin.lstrip(VARIABLE)}): it holds what a block before left there; initialise it"
            )


def changing_constants(module: Module, flow: AddressFlow, kernel: str, written: Mapping[int, int]) -> Iterator[str]:
    """Loads that count as constant (ld.global.nc) from what the same kernel writes: by position, with a line."""
    origins = {f"{kernel}/{module.functions[kernel].parameter_names[position]}": position for position in written}
    for name in flow.reached(kernel):
        for use in flow.steps_of(name).uses:
            if use.what == "load" and "nc" in use.instruction.opcode:
                for origin in {origin for form in flow.value(use.place) for origin, _ in form} & origins.keys():
                    yield (
                        f"line {use.instruction.line}: argument {origins[origin]} is read as a constant (ld.global.nc) "
                        f"and written by the same kernel (line {written[origins[origin]]}): use plain loads"
                    )


def _variable(flow: AddressFlow, use: Use) -> str:
    """The one variable that an address is in; empty where it may be elsewhere."""
    value = flow.value(use.place)
    if len(value) != 1:
        return ""
    (form,) = value
    return next(iter(form))[0] if len(form) == 1 and not is_tangled(form) else ""


def _written_before(
    function: Function, flow: AddressFlow, uses: Mapping[int, list[Use]], local: set[str]
) -> Mapping[int, frozenset[str]]:
    """Local variables that may have been written on the way to each instruction that can be reached."""
    edges, states = edges_of(function), {0: frozenset[str]()}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        if index >= len(function.instructions):
            continue
        after = states[index]
        if function.instructions[index].opcode[0] == "call":
            after = frozenset(local)
        for use in uses.get(index, ()):
            if use.what == "store":
                variable = _variable(flow, use)
                after |= {variable} if variable else local
        for target in edges[index]:
            if target is not None:
                merged = states.get(target, frozenset()) | after
                if target not in states or merged != states[target]:
                    states[target] = merged
                    waiting.append(target)
    return states
