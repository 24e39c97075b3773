"""What a kernel touches before it has waited for the kernels in front of it (`griddepcontrol.wait`).

A thread has waited where every path to it goes through a wait. All threads of a block have where the first thread has,
by the wait or by a path that only others take, and a barrier of the whole block lies between.

What this does not prove: that a kernel which touches no vector waits at all (it need not).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from services.evaluator.compiling.contract.flow.addresses import AddressFlow, called_by
from services.evaluator.compiling.contract.flow.graph import Edges, edges_of
from services.evaluator.compiling.contract.flow.steps import Scopes, Use, names_in
from services.evaluator.ptx import Function, Module
from services.evaluator.ptx.module import Instruction

First = Literal["absent", "not yet", "waited"]
"""Of thread 0 of a block; absent where its path does not lead."""


class State(NamedTuple):
    """On the way to an instruction."""

    all_waited: bool
    first: First


_FIRSTS: tuple[First, ...] = ("absent", "not yet", "waited")
_STATES = [State(all_waited, first) for all_waited in (False, True) for first in _FIRSTS]


@dataclass(frozen=True)
class Early:
    """An argument that is touched too early."""

    position: int
    line: int
    is_constant: bool
    """Behind the wait, but by a load that counts as constant: it may move up past the wait."""


def early_uses(module: Module, flow: AddressFlow, kernel: str) -> list[Early]:
    """Arguments that a kernel reaches before it has waited, each once, with the first line."""
    found: dict[tuple[int, bool], Early] = {}
    for early in _Waits(module, flow, kernel).early():
        found.setdefault((early.position, early.is_constant), early)
    return list(found.values())


class _Waits:
    def __init__(self, module: Module, flow: AddressFlow, kernel: str) -> None:
        self._module = module
        self._flow = flow
        self._names = [f"{kernel}/{name}" for name in module.functions[kernel].parameter_names]
        self._kernel = kernel
        self._early: list[Early] = []
        self._known: dict[str, tuple[Sequence[Instruction], Edges, Mapping[str, int]]] = {}
        self._after: dict[tuple[str, State], State | None] = {}

    def early(self) -> list[Early]:
        reached = self._flow.reached(self._kernel)
        if not any(each.opcode[0] == "griddepcontrol" for name in reached for each in self._of(name).instructions):
            return self._touched_by(reached)
        for name in self._called_first(reached)[:-1]:
            for before in _STATES:
                self._after[(name, before)] = self._walk(self._of(name), before)
        waiting = [(self._kernel, State(False, "not yet"))]
        seen = set(waiting)
        while waiting:
            self._calls: list[tuple[str, State]] = []
            name, before = waiting.pop()
            self._walk(self._of(name), before, noted=True)
            waiting += set(self._calls) - seen
            seen.update(self._calls)
        return self._early

    def _of(self, name: str) -> Function:
        return self._module.functions[name]

    def _touched_by(self, functions: Sequence[str]) -> list[Early]:
        """Of a kernel that never waits: everything."""
        for name in functions:
            for use in self._flow.steps_of(name).uses:
                self._note(use, State(False, "not yet"))
        return self._early

    def _called_first(self, functions: Sequence[str]) -> list[str]:
        """Each function behind those that it calls (a cycle is refused elsewhere); the kernel is the last."""
        order: list[str] = []
        waiting, seen = [(self._kernel, False)], set()
        while waiting:
            name, is_left = waiting.pop()
            if is_left:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                waiting.append((name, True))
                waiting += [(called, False) for called in called_by(self._of(name)) if called in functions]
        return order

    def _walk(self, function: Function, before: State, *, noted: bool = False) -> State | None:
        """The state behind a function, None where it never returns. Notes what is touched too early, if asked to."""
        if function.name not in self._known:
            scoped = list(Scopes(function).instructions())
            self._known[function.name] = scoped, edges_of(function), first_thread(scoped)
        instructions, edges, known = self._known[function.name]
        states: dict[int, State] = {0: before}
        waiting, exits = [0], []
        while waiting:
            index = waiting.pop()
            if index >= len(instructions):
                exits.append(states[index])
                continue
            after = self._step(instructions[index], states[index], known)
            for target, state in _with_states(instructions[index], edges[index], after, known):
                if target is None:
                    exits.append(state)
                    continue
                merged = _met(states[target], state) if target in states else state
                if target not in states or merged != states[target]:
                    states[target] = merged
                    waiting.append(target)
        if noted:
            self._note_all(function, states)
        return _met(*exits) if exits else None

    def _note_all(self, function: Function, states: Mapping[int, State]) -> None:
        uses = uses_by_instruction(self._flow.steps_of(function.name).uses)
        for index, state in sorted(states.items()):
            for use in uses.get(index, ()):
                self._note(use, state)
            if index < len(function.instructions) and (called := _called(function.instructions[index])):
                self._calls.append((called, state))

    def _step(self, instruction: Instruction, state: State, known: Mapping[str, int]) -> State:
        opcode = instruction.opcode
        if opcode[:2] == ("griddepcontrol", "wait"):
            if not instruction.guard:
                return State(True, "absent" if state.first == "absent" else "waited")
            takes = _holds(instruction.guard, known)
            return state._replace(first="waited") if takes and state.first == "not yet" else state
        if _is_whole_barrier(instruction) and state.first == "waited":
            return state._replace(all_waited=True)
        if opcode[0] == "call" and not instruction.guard:
            return self._after.get((_called(instruction), state)) or state
        return state

    def _note(self, use: Use, state: State) -> None:
        if use.what not in ("load", "store") or use.space in ("shared", "local", "param", "const"):
            return
        is_constant = "nc" in use.instruction.opcode
        if state.all_waited and not is_constant:
            return
        origins = {origin for form in self._flow.value(use.place) for origin, _ in form}
        for position, name in enumerate(self._names):
            if name in origins:
                self._early.append(Early(position, use.instruction.line, state.all_waited))


def uses_by_instruction(uses: Sequence[Use]) -> Mapping[int, list[Use]]:
    by_index: dict[int, list[Use]] = {}
    for use in uses:
        by_index.setdefault(use.index, []).append(use)
    return by_index


def _met(*states: State) -> State:
    """What holds on all of the paths that meet."""
    firsts = {state.first for state in states} - {"absent"}
    first: First = "absent" if not firsts else "not yet" if "not yet" in firsts else "waited"
    return State(all(state.all_waited for state in states), first)


def _called(instruction: Instruction) -> str:
    names = [operand for operand in instruction.operands if not operand.startswith("(")]
    return names[0] if instruction.opcode[0] == "call" and names else ""


def _with_states(
    instruction: Instruction, goes: Sequence[int | None], state: State, known: Mapping[str, int]
) -> Iterator[tuple[int | None, State]]:
    """What holds on each way: thread 0 goes one of them alone where it knows its guard."""
    if not instruction.guard or instruction.opcode[0] not in ("bra", "brx", "ret", "exit", "trap"):
        yield from ((target, state) for target in goes)
        return
    takes = _holds(instruction.guard, known)
    for target in goes[:-1]:
        yield target, state if takes in (True, None) else state._replace(first="absent")
    yield goes[-1], state if takes in (False, None) else state._replace(first="absent")


def _is_whole_barrier(instruction: Instruction) -> bool:
    """A barrier that every thread of the block comes to, as far as it has not left."""
    opcode = instruction.opcode
    whole = opcode[0] in ("bar", "barrier") and "sync" in opcode and "warp" not in opcode and "cluster" not in opcode
    return whole and not instruction.guard and len(instruction.operands) == 1


# -- what the first thread of a block knows ---------------------------------------------------------------------------
_FIRST_THREAD = {"%tid.x": 0, "%tid.y": 0, "%tid.z": 0, "%laneid": 0}
_NUMBER = re.compile(r"-?\d+")
_COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}


def first_thread(instructions: Sequence[Instruction]) -> Mapping[str, int]:
    """Registers that thread (0, 0, 0) of a block holds a known small number in: those with one definition.

    With names as `Scopes` gives them. Each name in a first operand counts, `p|q` and `{a, b}` define two.
    """
    targets = [name for each in instructions for operand in each.operands[:1] for name in names_in(operand)]
    once = _counted_once(targets)
    known = dict(_FIRST_THREAD)
    for instruction in instructions:
        value = _known_result(instruction, known)
        if value is not None and instruction.operands[0] in once and not instruction.guard:
            known[instruction.operands[0]] = value
    return known


def _counted_once(names: Sequence[str]) -> set[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return {name for name, count in counts.items() if count == 1}


def _known_result(instruction: Instruction, known: Mapping[str, int]) -> int | None:
    opcode, operands = instruction.opcode, instruction.operands
    if len(operands) not in (2, 3) or opcode[-1] not in ("u32", "s32", "b32"):
        return None
    values = [int(each) if _NUMBER.fullmatch(each) else known.get(each) for each in operands[1:]]
    if any(value is None for value in values):
        return None
    left, right = (values[0], values[-1])
    assert left is not None and right is not None
    if left < 0 or right < 0:
        return None
    match opcode[0]:
        case "mov":
            return left
        case "and":
            return left & right
        case "or":
            return left | right
        case "shr":
            return left >> min(right, 31)
        case "setp" if len(opcode) == 3:
            return int(_COMPARISONS[opcode[1]](left, right)) if opcode[1] in _COMPARISONS else None
    return None


def _holds(guard: str, known: Mapping[str, int]) -> bool | None:
    """Whether a guard holds for the first thread; None where that is not known."""
    value = known.get(guard.lstrip("!"))
    return None if value is None else bool(value) != guard.startswith("!")
