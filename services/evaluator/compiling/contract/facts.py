"""What the contract asks of compiled PTX, found where it was compiled: reading the text takes milliseconds of a
core, and a compiler's process has a time limit and may be lost."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from services.evaluator.compiling.contract.flow.addresses import AddressFlow, calls_of
from services.evaluator.compiling.contract.flow.bulk import unfinished_copies
from services.evaluator.compiling.contract.flow.clocks import CLOCK, leak
from services.evaluator.compiling.contract.flow.unordered import unordered_atomics
from services.evaluator.compiling.contract.flow.unset import Faulty, with_registers_set
from services.evaluator.compiling.contract.flow.unwritten import changing_constants, never_filled, unwritten_reads
from services.evaluator.compiling.contract.flow.waits import early_uses
from services.evaluator.ptx import Function, Module
from sparsesmith.program.restrictions.assembly import FORBIDDEN_INSTRUCTIONS

MAX_FAULTS = 8
_CLOCK_REASON = "clocks could tell a timed run from a checked one; how long a wait sleeps is all that one may decide"


class KernelFacts(NamedTuple):
    """Of one kernel, with all that it calls."""

    written: tuple[tuple[int, int], ...] = ()
    """(position, line) of the parameters that it writes through."""
    written_constants: tuple[tuple[str, int], ...] = ()
    """(name, line) of variables in constant or global memory that it writes to."""
    faults: tuple[str, ...] = ()
    """What it does with addresses that no kernel may, in words."""
    early: tuple[tuple[int, int, bool], ...] = ()
    """(position, line, by a constant load) of parameters that it touches before it has waited for what ran before."""
    unordered: tuple[tuple[str, int], ...] = ()
    """(instruction, line) of atomics whose order decides the bits of a result: see `flow.unordered`."""


class PtxFacts(NamedTuple):
    """Of all kernels of a program. Travels as JSON."""

    unreadable: str = ""
    """Why the PTX is outside the language that is read here; then nothing was assembled and the rest is empty."""
    persistent_variables: tuple[str, ...] = ()
    """Names of variables that outlive a launch."""
    forbidden_instruction: str = ""
    """A clock, a signal, ... with its line and why it may not be; empty where there is none."""
    has_unbounded_stack: bool = False
    """A function may call itself, or calls through a pointer."""
    kernels: Mapping[str, KernelFacts] = {}

    @staticmethod
    def of_json(fields: Mapping[str, Any]) -> "PtxFacts":
        """Of what `to_json` gave."""
        kernels = {name: KernelFacts(**_tuples(facts)) for name, facts in fields["kernels"].items()}
        return PtxFacts(**{**_tuples(fields), "kernels": kernels})

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "kernels": {name: facts._asdict() for name, facts in self.kernels.items()}}


NO_FACTS = PtxFacts()


def _tuples(value: Any) -> Any:
    """JSON has lists alone."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(each) for name, each in value.items()} if isinstance(value, dict) else value


def facts_of(module: Module, unset: Faulty | None = None) -> PtxFacts:
    """`unset`: registers that are read unset, where that is known already (`with_registers_set`)."""
    flow = AddressFlow(module)
    faulty = with_registers_set(module)[1] if unset is None else unset
    defined = {name: each for name, each in module.functions.items() if each.is_entry and each.body is not None}
    kernels = {name: _of_kernel(module, flow, name, faulty) for name in defined}
    return PtxFacts(
        persistent_variables=persistent_variables(module),
        forbidden_instruction=forbidden_instruction(module),
        has_unbounded_stack=has_unbounded_stack(module),
        kernels=kernels,
    )


def _of_kernel(module: Module, flow: AddressFlow, name: str, unset: Faulty) -> KernelFacts:
    uses, reached = flow.uses(name), flow.reached(name)
    unfinished = [fault for each in reached for fault in unfinished_copies(module.functions[each])]
    unwritten = [_unset(*register) for each in reached for register in unset.get(each, {}).items()]
    unwritten += [fault for each in reached for fault in unwritten_reads(module, flow, each)]
    changing = changing_constants(module, flow, name, uses.written)
    unwritten += dict.fromkeys([*changing, *never_filled(module, flow, name)])
    return KernelFacts(
        tuple(uses.written.items()),
        tuple(uses.constants.items()),
        tuple([*uses.faults, *unfinished, *unwritten][:MAX_FAULTS]),
        tuple((early.position, early.line, early.is_constant) for early in early_uses(module, flow, name)),
        tuple(found for each in reached for found in unordered_atomics(module.functions[each]))[:MAX_FAULTS],
    )


def _unset(register: str, line: int) -> str:
    return (
        f"line {line}: a value is used that nothing sets, or assembly not on every path (register "
        f"{register.partition('#')[0]}): it would be what a program before left there; initialise it"
    )


def persistent_variables(module: Module) -> tuple[str, ...]:
    """Variables in global memory without initial contents. Tables with them are constants: the flow of addresses sees
    whoever writes to one."""
    return tuple(each.name for each in module.all_variables if each.space == "global" and "=" not in each.text)


def forbidden_instruction(module: Module) -> str:
    """What no kernel may execute, with the line and the reason; empty where there is nothing."""
    for function in module.functions.values():
        if not any(pattern.search("\n".join(_instructions(function))) for pattern, _ in FORBIDDEN_INSTRUCTIONS):
            continue
        reads_clock = False
        for statement in function.body or ():
            for pattern, reason in FORBIDDEN_INSTRUCTIONS if statement.kind == "instruction" else ():
                found = pattern.search(statement.text)
                if found and found.group() == CLOCK and statement.text.startswith("mov."):
                    reads_clock = True
                elif found:
                    return f"{found.group()} (line {statement.line}): {reason}"
        if reads_clock and (line := leak(function)) is not None:
            return f"{CLOCK} (line {line}): {_CLOCK_REASON}"
    return ""


def _instructions(function: Function) -> Iterator[str]:
    return (statement.text for statement in function.body or () if statement.kind == "instruction")


def has_unbounded_stack(module: Module) -> bool:
    """Whether a function may call itself, directly or through others, or calls through a pointer."""
    calls = calls_of(module)
    known = set(module.functions)
    return any(not names <= known for names in calls.values()) or _has_cycle(calls)


def _has_cycle(calls: Mapping[str, set[str]]) -> bool:
    """Takes away functions that call no other of the rest: what stays is in a cycle or leads to one."""
    rest = {name: {other for other in names if other in calls} for name, names in calls.items()}
    callers: dict[str, set[str]] = {}
    for name, names in rest.items():
        for other in names:
            callers.setdefault(other, set()).add(name)
    leaves = [name for name, names in rest.items() if not names]
    while leaves:
        leaf = leaves.pop()
        del rest[leaf]
        for caller in callers.get(leaf, ()):
            rest[caller].discard(leaf)
            if not rest[caller]:
                leaves.append(caller)
    return bool(rest)
