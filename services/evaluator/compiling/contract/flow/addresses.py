"""The flow of addresses through a module, and what its kernels do with them.

What this does not see: which element of a buffer an address names (guards and the interpreter do), and what a program
could learn from the order in which its threads run.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.evaluator.compiling.contract.flow.steps import PARAMETERS, Fetched, Step, Steps, Use, number, one_of
from services.evaluator.compiling.contract.flow.values import (
    NUMBER,
    NUMBERS,
    VARIABLE,
    Form,
    Value,
    address_of,
    bounded,
    is_tangled,
)
from services.evaluator.ptx import Function, Module

_OWN_SPACES = ("shared", "local", "param")


@dataclass
class KernelUses:
    """What a kernel, or what it calls, does with addresses."""

    written: dict[int, int] = field(default_factory=dict)
    """Position of each parameter that it writes through, and the first line where."""
    constants: dict[str, int] = field(default_factory=dict)
    """Variables outside shared and local memory that it writes to, and the line."""
    faults: list[str] = field(default_factory=list)
    """Stores to what cannot be told, and addresses used as data: each with its line and what to write instead."""


class AddressFlow:
    """What every place of a module may hold."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._spaces = {variable.name: variable.space for variable in module.all_variables}
        self._functions = {
            name: Steps(module, function, self._spaces)
            for name, function in module.functions.items()
            if function.body is not None
        }
        self._known: dict[str, Value] = {}
        self._spread()

    def value(self, place: str) -> Value:
        return self._known.get(place, NUMBERS)

    def steps_of(self, function: str) -> Steps:
        return self._functions[function]

    def uses(self, kernel: str) -> KernelUses:
        found = KernelUses()
        for name in self.reached(kernel):
            steps = self._functions[name]
            for word, line in steps.unknown:
                found.faults.append(
                    f"line {line}: '{word}' is not an instruction that kernels may use: it counts as a store to "
                    "anywhere; use plain loads, stores and arithmetic"
                )
            for use in steps.uses:
                self._judge(use, kernel, found)
        found.faults = list(dict.fromkeys(found.faults))
        return found

    def reached(self, kernel: str) -> list[str]:
        """The kernel and all that it calls, directly or not."""
        names, position = [kernel], 0
        while position < len(names):
            called = called_by(self._module.functions[names[position]])
            names += sorted({each for each in called if each in self._functions}.difference(names))
            position += 1
        return names

    # -- what flows
    def _spread(self) -> None:
        """First what addresses do, then all else: what a load gives is a number unless an address was stored there."""
        steps = [step for each in self._functions.values() for step in each.steps]
        self._begin(steps)
        readers: defaultdict[str, list[Step]] = defaultdict(list)
        for step in steps:
            for source in set(step.sources):
                readers[source].append(step)
        self._settle(steps, readers)
        targets = {step.target for step in steps}
        numbers = [step for step in steps if isinstance(step.rule, Fetched) and not self._known[step.target]]
        self._settle([Step(step.target, (), number) for step in numbers], readers)
        # What is still unknown goes round in a circle that nothing enters.
        unknown = [Step(target, (), number) for target in targets if not self._known[target]]
        self._settle(unknown, readers)

    def _settle(self, steps: Sequence[Step], readers: Mapping[str, Sequence[Step]]) -> None:
        """Each step again whenever one of its sources has grown: ends because values only grow, up to a bound."""
        known, waiting = self._known, deque(steps)
        queued = set(map(id, steps))
        while waiting:
            step = waiting.popleft()
            queued.discard(id(step))
            sources = [known[source] for source in step.sources]
            if step.rule is one_of:
                sources = [each for each in sources if each]
            elif isinstance(step.rule, Fetched):
                sources = [sources[0] or NUMBERS, *sources[1:]]
            if step.sources and not isinstance(step.rule, Fetched) and not (sources and all(sources)):
                continue
            before = known[step.target]
            after = bounded(before | step.rule(sources))
            if after != before:
                known[step.target] = after
                for reader in readers.get(step.target, ()):
                    if id(reader) not in queued:
                        queued.add(id(reader))
                        waiting.append(reader)

    def _begin(self, steps: Iterable[Step]) -> None:
        known, targets = self._known, {step.target for step in steps}
        for step in steps:
            for place in (*step.sources, step.target):
                if place not in known:
                    known[place] = frozenset() if place in targets else NUMBERS
        for name in (*self._spaces, PARAMETERS):
            known[f"{VARIABLE}{name}"] = address_of(f"{VARIABLE}{name}")
        for name, function in self._module.functions.items():
            if function.is_entry:
                for declared, parameter in zip(function.parameters, function.parameter_names, strict=True):
                    if "64" in declared.split(" ")[1]:
                        known[f"{name}/{parameter}+0"] = address_of(f"{name}/{parameter}")

    # -- what is done with it
    def _judge(self, use: Use, kernel: str, found: KernelUses) -> None:
        value = self.value(use.place)
        match use.what:
            case "store":
                if use.space not in _OWN_SPACES:
                    for form in value or NUMBERS:
                        self._judge_store(form, use, kernel, found)
            case "load":
                if use.space in ("", "global") and NUMBER in value:
                    found.faults.append(
                        f"{_where(use)} reads from an address computed from numbers alone: "
                        "a load comes from an argument or a variable, by a pointer to it"
                    )
            case "data":
                if use.space not in _OWN_SPACES and self._leaves(use) and any(_is_telling(form) for form in value):
                    found.faults.append(f"{_where(use)} stores a value that was computed from addresses: {_INSTEAD}")
            case "condition":
                if any(_is_telling(form) for form in value):
                    found.faults.append(f"{_where(use)} depends on where buffers lie: {_INSTEAD}")

    def _leaves(self, use: Use) -> bool:
        """Whether a store may go to memory that outlives the kernel."""
        return any(
            not all(origin.startswith(VARIABLE) for origin, _ in form) or not form for form in self.value(use.address)
        )

    def _judge_store(self, form: Form, use: Use, kernel: str, found: KernelUses) -> None:
        origins = sorted(origin for origin, _ in form)
        function = self._module.functions[kernel]
        names = [f"{kernel}/{parameter}" for parameter in function.parameter_names]
        line = use.instruction.line
        if len(form) == 1 and not is_tangled(form) and next(iter(form))[1] == 1:
            if origins[0] in names:
                found.written.setdefault(names.index(origins[0]), line)
                return
            if origins[0].startswith(VARIABLE):
                name = origins[0][1:]
                if self._spaces[name] not in _OWN_SPACES:
                    found.constants.setdefault(name, line)
                return
            if "/" in origins[0] and not origins[0].endswith("^"):
                return  # a parameter of another kernel that calls the same function: judged there
        what = "numbers alone" if not form else " and ".join(self._spoken(origin) for origin in origins)
        found.faults.append(
            f"{_where(use)} writes to an address computed from {what}: a store goes to the output, to scratch, "
            "to shared or to local memory, by a pointer that comes from one of them; index the argument itself"
        )

    def _spoken(self, origin: str) -> str:
        """A parameter by its position (its name is the caller's to know), a variable by its name."""
        kernel, _, parameter = origin.rstrip("^").partition("/")
        function = self._module.functions.get(kernel)
        if function is None or parameter not in function.parameter_names:
            return origin.lstrip(VARIABLE)
        return f"argument {function.parameter_names.index(parameter)}"


_INSTEAD = "addresses are for reaching memory; compare and compute indices instead"


def _is_telling(form: Form) -> bool:
    """Whether a value tells where a buffer lies."""
    return any(not origin.startswith(VARIABLE) for origin, _ in form)


def _where(use: Use) -> str:
    return f"line {use.instruction.line}: '{'.'.join(use.instruction.opcode)}'"


def called_by(function: Function) -> set[str]:
    """Names of what a function calls; a call through a pointer has the register's name."""
    names = set()
    for instruction in function.instructions:
        if instruction.opcode[0] == "call":
            plain = [operand for operand in instruction.operands if not operand.startswith("(")]
            names.update(plain[:1])
    return names


def calls_of(module: Module) -> Mapping[str, set[str]]:
    return {name: called_by(function) for name, function in module.functions.items() if function.body is not None}
