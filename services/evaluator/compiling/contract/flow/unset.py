"""Registers that are read though some path has set them nowhere: on a GPU they hold what a program before left there.

A register counts as set where every path to the read sets it. Paths are told apart by their predicates: what is set
under one, and read under the same one, is set, and so is what a predicate and its opposite set together.

Honest C++ leaves such registers (`float best; for (...) if (first || v > best) best = v;`), so they are set to zero
where their function begins: nothing of before can be read in any. Two kinds have no honest use and are faults: a
register that nothing sets at all, and one of inline assembly.

What this does not prove: that a value which was set makes sense.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from services.evaluator.compiling.contract.flow.graph import Edges, edges_of
from services.evaluator.compiling.contract.flow.steps import Scopes, gives_result, names_in
from services.evaluator.ptx import Function, Module
from services.evaluator.ptx.module import Instruction, Statement

_FAMILY = re.compile(r"\.reg \.(\w+) (.*)")
_ZERO = {"pred": "mov.pred {}, 0"} | {
    kind + bits: f"mov.b{bits} {{}}, 0" for kind in "bsuf" for bits in ("16", "32", "64", "128")
}


MAX_TOLD_APART = 50_000
"""Doubtful registers times predicates: beyond that paths are not told apart."""


class Unset(NamedTuple):
    """Of one function: registers with the line of their first read that some path comes to unset."""

    faulty: Mapping[str, int]
    """Those that nothing sets, or that assembly declares."""
    left: Mapping[str, int]
    """Those that the compiler leaves unset on some path."""


def unset_registers(function: Function) -> Unset:
    accesses, edges = accesses_of(function), edges_of(function)
    unset = _unset_reads(accesses, edges)
    written = {name for access in accesses for name in access.written} if unset else set()
    declared = dict(_declared_by_the_compiler(function)) if unset else {}
    left = {name: line for name, line in unset.items() if name in written and _type_of(name, declared) in _ZERO}
    return Unset({name: line for name, line in unset.items() if name not in left}, left)


Faulty = Mapping[str, Mapping[str, int]]
"""By function, registers that are read unset and stay so, with the line."""


def with_registers_set(module: Module) -> tuple[Module, Faulty]:
    """The module with every register that some path leaves unset set to zero before anything else; and the faulty."""
    defined = {name: function for name, function in module.functions.items() if function.body is not None}
    unset = {name: unset_registers(function) for name, function in defined.items()}
    changed = {name: _with_zeros(defined[name], each.left) for name, each in unset.items() if each.left}
    faulty = {name: each.faulty for name, each in unset.items() if each.faulty}
    return (replace(module, functions={**module.functions, **changed}) if changed else module), faulty


def _with_zeros(function: Function, names: Mapping[str, int]) -> Function:
    body, first = function.body or (), _begin(function)
    types, line = dict(_declared_by_the_compiler(function)), body[first].line
    texts = [_ZERO[_type_of(name, types)].format(name) for name in sorted(names)]
    zeros = [Statement("instruction", text, line) for text in texts]
    taken = [_instruction(text, line) for text in texts]
    return replace(function, body=(*body[:first], *zeros, *body[first:]), instructions=(*taken, *function.instructions))


def _instruction(text: str, line: int) -> Instruction:
    opcode, _, operands = text.partition(" ")
    return Instruction("", tuple(opcode.split(".")), tuple(operands.split(", ")), line)


def _begin(function: Function) -> int:
    """The first statement that is no declaration, or opens a scope: what assembly declares stands behind it."""
    kinds = [each.kind for each in function.body or ()]
    return next(at for at, kind in enumerate(kinds) if at and kind not in ("registers", "variable", "pragma"))


def _declared_by_the_compiler(function: Function) -> Iterator[tuple[str, str]]:
    """(name, or its beginning and `<`, type) of registers."""
    for statement in (function.body or ())[: _begin(function)]:
        found = _FAMILY.fullmatch(statement.text) if statement.kind == "registers" else None
        for name in found[2].split(",") if found else ():
            beginning, family, _ = name.strip().partition("<")
            yield beginning + family, found[1] if found else ""


def _type_of(name: str, types: Mapping[str, str]) -> str:
    """Empty for a register of an inner scope, or one that is declared behind the first instruction."""
    return types.get(name) or types.get(name.rstrip("0123456789") + "<", "")


class Access(NamedTuple):
    """What an instruction does with registers."""

    guard: str
    read: tuple[str, ...]
    written: tuple[str, ...]
    line: int


class State(NamedTuple):
    """What holds on every path to an instruction."""

    is_set: int = 0
    """A bit for each register that may be read unset."""
    facts: frozenset[str] = frozenset()
    """Predicates that hold: `%p1`, `!%p1`."""
    under: frozenset[tuple[str, int]] = frozenset()
    """(predicate, bit of a register that is set wherever it holds)."""


def _unset_reads(accesses: Sequence[Access], edges: Edges) -> Mapping[str, int]:
    doubtful = _unset_on_any_path(accesses, edges)
    if not doubtful:
        return {}
    if len(doubtful) * len({access.guard for access in accesses}) > MAX_TOLD_APART:
        return {name: next(each.line for each in accesses if name in each.read) for name in doubtful}
    bits = {name: 1 << number for number, name in enumerate(doubtful)}
    states = _Paths(accesses, edges, bits).states()
    found: dict[str, int] = {}
    for index in sorted(states):
        for name in _unset_in(accesses[index], states[index], bits) if index < len(accesses) else ():
            found.setdefault(name, accesses[index].line)
    return found


def accesses_of(function: Function) -> Sequence[Access]:
    """Of each instruction, with registers of inner scopes by names of their own."""
    return list(_accesses(function))


def _accesses(function: Function) -> Iterator[Access]:
    scopes = Scopes(function)
    for instruction in scopes.instructions():
        operands = [tuple(filter(scopes.is_register, names_in(operand))) for operand in instruction.operands]
        has_result = gives_result(instruction)
        read = [name for names in operands[has_result:] for name in names]
        guard = instruction.guard.lstrip("!")
        written = operands[0] if has_result and operands else ()
        yield Access(instruction.guard, tuple([*read, guard] if guard else read), written, instruction.line)


# -- a quick look, which tells no paths apart --------------------------------------------------------------------------
def _unset_on_any_path(accesses: Sequence[Access], edges: Edges) -> Sequence[str]:
    """Registers of which the quick look does not see that they are set before they are read: few or none."""
    bits: dict[str, int] = {}
    reads, writes = [], []
    for access in accesses:
        reads.append(_mask(access.read, bits))
        writes.append(0 if access.guard else _mask(access.written, bits))
    states: dict[int, int] = {0: 0}
    waiting, exposed = [0], 0
    while waiting:
        index = waiting.pop()
        if index >= len(accesses):
            continue
        exposed |= reads[index] & ~states[index]
        after = states[index] | writes[index]
        for target in edges[index]:
            if target is None:
                continue
            merged = after & states.get(target, after)
            if states.get(target) != merged:
                states[target] = merged
                waiting.append(target)
    return [name for name, bit in bits.items() if bit & exposed]


def _mask(names: Sequence[str], bits: dict[str, int]) -> int:
    mask = 0
    for name in names:
        mask |= bits.setdefault(name, 1 << len(bits))
    return mask


# -- paths told apart by their predicates ------------------------------------------------------------------------------
def _opposite(predicate: str) -> str:
    return predicate[1:] if predicate.startswith("!") else f"!{predicate}"


class _Paths:
    def __init__(self, accesses: Sequence[Access], edges: Edges, bits: Mapping[str, int]) -> None:
        self._accesses = accesses
        self._edges = edges
        self._bits = bits
        self._predicates = {access.guard.lstrip("!") for access in accesses} - {""}
        self._into: dict[int, dict[int, State]] = {}

    def states(self) -> Mapping[int, State]:
        states = {0: State()}
        waiting = [0]
        while waiting:
            index = waiting.pop()
            if index >= len(self._accesses):
                continue
            for target, state in self._after(index, states[index]):
                before = self._into.setdefault(target, {})
                before[index] = state
                merged = _met(list(before.values()) + ([State()] if target == 0 else []))
                if states.get(target) != merged:
                    states[target] = merged
                    waiting.append(target)
        return states

    def _after(self, index: int, state: State) -> Iterator[tuple[int, State]]:
        access, goes = self._accesses[index], self._edges[index]
        state = self._written(access, state)
        for position, target in enumerate(goes):
            if target is None:
                continue
            if not access.guard or (len(goes) == 1 and target == index + 1):
                yield target, state
            else:
                is_last = position == len(goes) - 1
                yield target, _knowing(state, _opposite(access.guard) if is_last else access.guard)

    def _written(self, access: Access, state: State) -> State:
        is_set, facts, under = state
        changed = self._predicates.intersection(access.written)
        if changed:
            facts = frozenset(each for each in facts if each.lstrip("!") not in changed)
            under = frozenset(each for each in under if each[0].lstrip("!") not in changed)
        for name in access.written:
            bit = self._bits.get(name, 0)
            if not bit or is_set & bit:
                continue
            if not access.guard or access.guard in facts or (_opposite(access.guard), bit) in under:
                is_set |= bit
            else:
                under |= {(access.guard, bit)}
        return State(is_set, facts, under)


def _knowing(state: State, predicate: str) -> State:
    is_set = state.is_set
    for name, bit in state.under:
        if name == predicate:
            is_set |= bit
    return state._replace(is_set=is_set, facts=state.facts | {predicate})


def _met(states: Sequence[State]) -> State:
    """What holds on all of the ways that meet. What is set on those where a predicate holds, and not on those where its
    opposite does, is set under it."""
    if len(states) == 1:
        return states[0]
    is_set = states[0].is_set
    some = 0
    for state in states:
        is_set &= state.is_set
        some |= state.is_set
    facts = frozenset.intersection(*(state.facts for state in states))
    wanted = {each for state in states for each in state.under}
    told = {each for state in states for each in state.facts} - facts
    wanted |= {(predicate, bit) for predicate in told for bit in _bits_of(some & ~is_set)}
    under = frozenset(
        each for each in wanted if not each[1] & is_set and all(_implies(state, *each) for state in states)
    )
    return State(is_set, facts, under)


def _implies(state: State, predicate: str, bit: int) -> bool:
    return bool(state.is_set & bit) or _opposite(predicate) in state.facts or (predicate, bit) in state.under


def _bits_of(mask: int) -> Iterator[int]:
    while mask:
        yield mask & -mask
        mask &= mask - 1


def _unset_in(access: Access, state: State, bits: Mapping[str, int]) -> Iterator[str]:
    for name in access.read:
        bit = bits.get(name, 0)
        if bit and not state.is_set & bit and (access.guard, bit) not in state.under:
            yield name
