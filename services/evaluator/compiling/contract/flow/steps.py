"""From instructions to steps: a place (a register, a parameter, what memory holds) gets a value from others."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from services.evaluator.compiling.contract.flow import opcodes
from services.evaluator.compiling.contract.flow.values import (
    HIGH,
    NUMBER,
    NUMBERS,
    SHIFTED,
    VARIABLE,
    Form,
    Value,
    combinations,
    difference,
    high_half,
    is_tangled,
    joined_halves,
    low_bits,
    shifted_right,
    tangled,
    total,
)
from services.evaluator.ptx import Function, Module
from services.evaluator.ptx.module import Instruction, declared_name

Rule = Callable[[Sequence[Value]], Value]

POINTER_BYTES = 8
MAX_PASSED_BYTES = 64
"""What lies further behind in a structure that is passed by value is taken to be one thing."""

PARAMETERS = "@parameters"
"""Stands for the variable whose address is that of a parameter."""

MAX_LOW_BITS = 127
"""The least bits of an address tell its alignment, and nothing of where a buffer lies."""

_ADDRESS = re.compile(r"\[\s*([%A-Za-z_$][\w$#]*|\d\w*)(?:\s*\+\s*(-?\w+))?\s*\]")
_NAME = re.compile(r"(?<![\w.$%#])[%A-Za-z_$][\w$#]*")
_LITERAL = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")
_WIDE = frozenset({"b64", "u64", "s64"})
_REGISTER_FAMILY = re.compile(r"([%\w$]+)<(\d+)>")
_LENGTH = re.compile(r"\[(\d*)\]$")
_WIDTH = re.compile(r"\.[bsuf](\d+)\b")
_DECLARED_REGISTERS = re.compile(r"\.reg \.\w+ (.*)")


@dataclass(frozen=True)
class Step:
    target: str
    sources: tuple[str, ...]
    rule: Rule


@dataclass(frozen=True)
class Use:
    """A place whose value must be fit for what an instruction does with it."""

    what: str
    """`store`, `load`, `data` (a value that is stored) or `condition`."""
    place: str
    space: str
    instruction: Instruction
    index: int
    """Of the instruction in its function."""
    address: str = ""
    """Of `data`: where it goes."""


@dataclass(frozen=True)
class Located:
    """An address operand: what it is computed from, and a constant distance."""

    base: str
    offset: int


# -- rules ------------------------------------------------------------------------------------------------------------
def one_of(values: Sequence[Value]) -> Value:
    return frozenset().union(*values)


def sum_of(values: Sequence[Value]) -> Value:
    return frozenset(total(left, right) for left, right in combinations(values))


def distance(values: Sequence[Value]) -> Value:
    return frozenset(total(left, right, -1) for left, right in combinations(values))


def negated(values: Sequence[Value]) -> Value:
    return frozenset(total(NUMBER, form, -1) for form in values[0])


def entangled(values: Sequence[Value]) -> Value:
    return frozenset(tangled(forms) for forms in combinations(values))


def product_and_sum(values: Sequence[Value]) -> Value:
    return frozenset(total(tangled(forms[:2]), forms[2]) for forms in combinations(values))


def compared(values: Sequence[Value]) -> Value:
    return frozenset(difference(left, right) for left, right in combinations(values[:2])) | entangled(values[2:])


def chosen(values: Sequence[Value]) -> Value:
    """One of two, by a condition."""
    condition = entangled(values[2:])
    return one_of(values[:2]) if condition == NUMBERS else entangled(values)


def larger(values: Sequence[Value]) -> Value:
    return one_of(values) if compared(values) == NUMBERS else entangled(values)


def upper_half(values: Sequence[Value]) -> Value:
    return frozenset(map(high_half, values[0]))


def whole(values: Sequence[Value]) -> Value:
    return frozenset(joined_halves(low, high) for low, high in combinations(values))


def number(values: Sequence[Value]) -> Value:
    return NUMBERS


def told_by(values: Sequence[Value]) -> Value:
    """What results tell of addresses that decide them otherwise than as addresses do; nothing of plain numbers."""
    return frozenset(form for form in entangled(values) if form)


def shuffled(values: Sequence[Value]) -> Value:
    """Another lane's value: which lane's tells of what chose it."""
    return values[0] | told_by(values[1:])


def _tells(form: Form) -> bool:
    return is_tangled(form) or len(form) > 1


def told_by_place(value: Value) -> Value:
    """What the places that a value leads to tell of where buffers lie: nothing where it is a plain address."""
    return frozenset(told for form in value if _tells(form) and (told := tangled([form])))


@dataclass(frozen=True)
class Fetched:
    """What a load gives: its address, then what was stored in each of the places where it may come from."""

    reaches: Callable[[Form, str], bool]
    """Whether an address may lead to a place."""
    places: tuple[str, ...]
    is_whole: bool
    """Of the size of an address: less is bits of one."""

    def __call__(self, values: Sequence[Value]) -> Value:
        telling = {tangled([form]) for form in values[0] if _tells(form)}
        held = {
            form if self.is_whole else tangled([form])
            for place, value in zip(self.places, values[1:], strict=True)
            if any(self.reaches(form, place) for form in values[0])
            for form in value
        }
        return frozenset(telling | held)


@dataclass(frozen=True)
class Kept:
    """What a store leaves in one place: its address, then the value."""

    reaches: Callable[[Form, str], bool]
    place: str
    is_whole: bool

    def __call__(self, values: Sequence[Value]) -> Value:
        if not any(self.reaches(form, self.place) for form in values[0]):
            return frozenset()
        kept = values[1] if self.is_whole else entangled(values[1:])
        return kept | told_by_place(values[0])


@dataclass(frozen=True)
class Copied:
    """What an asynchronous copy leaves in its target: numbers, which may tell of its addresses and other operands."""

    num_addresses: int

    def __call__(self, values: Sequence[Value]) -> Value:
        addresses, others = values[: self.num_addresses], values[self.num_addresses :]
        return frozenset([NUMBER, *told_by(others), *(form for each in addresses for form in told_by_place(each))])


# -- names ------------------------------------------------------------------------------------------------------------
class Scopes:
    """Registers and parameters that a function declares again in inner scopes, by assembly or for a call."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._number = 0
        self._open: list[tuple[int, set[str], list[tuple[str, int]]]] = []
        self._variables: set[str] = set()
        self._outermost: set[str] = set()
        """Known to be registers of the outermost scope."""

    def instructions(self) -> Iterator[Instruction]:
        """With names of inner scopes made unique: `p#3`."""
        instructions = iter(self._function.instructions)
        for statement in self._function.body or ():
            match statement.kind:
                case "open":
                    self._open.append((self._number, set(), []))
                    self._number += 1
                case "close":
                    self._open.pop()
                case "registers":
                    self._declare(statement.text)
                case "variable":
                    self._open[-1][1].add(opcodes_name(statement.text))
                    self._variables.add(f"{opcodes_name(statement.text)}#{self._open[-1][0]}")
                case "instruction":
                    yield self._resolved(next(instructions))

    def is_register(self, name: str) -> bool:
        """Of a name as `instructions` gives it, while it is there."""
        if "#" in name:
            return name not in self._variables
        if name not in self._outermost:
            _, names, families = self._open[0]
            declared = name in names and f"{name}#{self._open[0][0]}" not in self._variables
            if not declared and not any(_is_of(name, prefix, count) for prefix, count in families):
                return False
            self._outermost.add(name)
        return True

    def _declare(self, text: str) -> None:
        found = _DECLARED_REGISTERS.fullmatch(text)
        for name in found[1].split(",") if found else ():
            family = _REGISTER_FAMILY.fullmatch(name.strip())
            if family:
                self._open[-1][2].append((family[1], int(family[2])))
            else:
                self._open[-1][1].add(name.strip())

    def _resolved(self, instruction: Instruction) -> Instruction:
        if not any(names or families for _, names, families in self._open[1:]):
            return instruction
        operands = tuple(_NAME.sub(self._unique, operand) for operand in instruction.operands)
        return instruction._replace(guard=_NAME.sub(self._unique, instruction.guard), operands=operands)

    def _unique(self, found: re.Match[str]) -> str:
        name = found.group()
        for number, names, families in reversed(self._open[1:]):
            if name in names or any(_is_of(name, prefix, count) for prefix, count in families):
                return f"{name}#{number}"
        return name


@lru_cache(maxsize=1 << 16)
def names_in(operand: str) -> tuple[str, ...]:
    """Registers, parameters, variables and labels that an operand names. Programs name their registers alike."""
    return tuple(_NAME.findall(operand))


def opcodes_name(declaration: str) -> str:
    return declaration.partition("=")[0].strip().rpartition(" ")[2].partition("[")[0]


def _declared_bytes(declarations: Sequence[str]) -> Mapping[str, int]:
    """Of parameters by name; of those that several scopes declare (for calls), the most."""
    found: dict[str, int] = {}
    for each in declarations:
        declaration = each.partition("=")[0].strip()
        length = _LENGTH.search(declaration)
        width = _WIDTH.findall(declaration)
        num_bytes = (int(width[-1]) // 8 if width else POINTER_BYTES) * (int(length[1] or 1) if length else 1)
        name = declared_name(declaration)
        found[name] = max(num_bytes, found.get(name, 0))
    return found


def _is_of(name: str, prefix: str, count: int) -> bool:
    rest = name[len(prefix) :]
    return name.startswith(prefix) and rest.isdigit() and int(rest) < count


# -- instructions -----------------------------------------------------------------------------------------------------
class Steps:
    """Steps and uses of one function."""

    def __init__(self, module: Module, function: Function, spaces: Mapping[str, str]) -> None:
        self._module = module
        self._function = function
        self._spaces = spaces
        self.steps: list[Step] = []
        self.uses: list[Use] = []
        self.unknown: list[tuple[str, int]] = []
        """Instructions that are not on the list, and calls of what has no code: the word and its line."""
        declared = [each.text for each in function.variables if each.space == "param"]
        self._parameter_bytes = _declared_bytes([*function.parameters, *function.results, *declared])
        self._parameters = frozenset(self._parameter_bytes)
        for self._index, instruction in enumerate(Scopes(function).instructions()):
            self._add(instruction)

    def _add(self, instruction: Instruction) -> None:
        if instruction.guard:
            self._use("condition", self._place(instruction.guard.lstrip("!")), "", instruction)
        match opcodes.kind_of(instruction.opcode):
            case "computes":
                self._compute(instruction)
            case "loads":
                self._load(instruction)
            case "stores":
                self._store(instruction)
            case "copies":
                self._copy(instruction)
            case "controls":
                self._control(instruction)
            case "calls":
                self._call(instruction)
            case None:
                self.unknown.append((".".join(instruction.opcode), instruction.line))

    def _use(self, what: str, place: str, space: str, instruction: Instruction) -> None:
        self.uses.append(Use(what, place, space, instruction, self._index))

    def _step(self, target: str, sources: Sequence[str], rule: Rule) -> None:
        self.steps.append(Step(target, tuple(sources), rule))

    def _place(self, name: str, offset: int = 0) -> str:
        """A register, a parameter (by multiples of a pointer within a structure) or a variable."""
        if name in self._spaces and "#" not in name:
            return f"&{name}"
        base = name.partition("#")[0]
        if base in self._parameters:
            return f"{self._function.name}/{name}+{min(offset // POINTER_BYTES * POINTER_BYTES, MAX_PASSED_BYTES)}"
        return f"{self._function.name}/{name}"

    def _places(self, operand: str) -> list[str]:
        return [self._place(name) for name in names_in(operand) if name != "_"]

    # -- computing
    def _compute(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        if not operands:
            return
        targets, sources = self._targets(operands[0]), [self._source(operand) for operand in operands[1:]]
        if opcode[0] == "mov" and operands[0].startswith("{"):
            self._unpack(targets, sources)
        elif opcode[:2] == ("bfi", "b64") and operands[3:] == ("32", "32"):
            self._step(targets[0], [sources[1], sources[0]], whole)
        elif opcode[0] == "mov" and len(operands) == 2 and operands[1].startswith("{"):
            parts = self._places(operands[1])
            self._step(targets[0], parts, whole if len(parts) == 2 and opcode[-1] == "b64" else entangled)
        else:
            rule = _rule(opcode, operands)
            flat = [place for operand in operands[1:] for place in (self._places(operand) or [_NONE])]
            used = sources if len(flat) == len(sources) else flat
            for target in targets:
                self._step(target, used, rule)

    def _targets(self, operand: str) -> list[str]:
        return self._places(operand)

    def _source(self, operand: str) -> str:
        names = names_in(operand)
        if names and names[0].partition("#")[0] in self._parameters:
            return f"{VARIABLE}{PARAMETERS}"
        return self._place(names[0]) if names else _NONE

    def _unpack(self, targets: Sequence[str], sources: Sequence[str]) -> None:
        if len(targets) != 2:
            for target in targets:
                self._step(target, sources, entangled)
            return
        self._step(targets[0], sources, one_of)
        self._step(targets[1], sources, upper_half)

    # -- memory
    def _load(self, instruction: Instruction) -> None:
        space = opcodes.space(instruction.opcode)
        where = self._located(instruction, 1)
        if where is None:
            return
        targets = self._targets(instruction.operands[0])
        if where.base.partition("#")[0] in self._parameters:
            self._load_parameter(instruction, targets, where)
            return
        address = self._place(where.base)
        self._use("load", address, space, instruction)
        may_be_own = space in ("", "param", "local")
        places = (*_MEMORIES, *(self._own_places if may_be_own else ()))
        rule = Fetched(self._reaches(space), places, instruction.opcode[-1] in _WIDE)
        beside = [place for operand in instruction.operands[2:] for place in self._places(operand)]
        for target in targets:
            self._step(target, [address, *places], rule)
            if beside:
                self._step(target, beside, told_by)

    @cached_property
    def _own_places(self) -> tuple[str, ...]:
        return tuple(self._place(name, at) for name in sorted(self._parameters) for at in _OFFSETS)

    def _reaches(self, space: str) -> Callable[[Form, str], bool]:
        """Whether an access of a state space (empty: generic) may lead from an address to a place of memory."""

        def reaches(form: Form, place: str) -> bool:
            if len(form) == 1 and not is_tangled(form):
                ((origin, _),) = form
                if not origin.startswith(VARIABLE):
                    return False
                at = self._spaces.get(origin[1:], "param")
            else:
                at = space
            kind = place[1:-1] if place in _MEMORIES else "param"
            return at in ("", kind)

        return reaches

    def _load_parameter(self, instruction: Instruction, targets: Sequence[str], where: Located) -> None:
        size = _bytes_of(instruction.opcode[-1])
        if not self._is_within(where, size * len(targets)):
            self.unknown.append((f"{'.'.join(instruction.opcode)} beyond {where.base}", instruction.line))
        for index, target in enumerate(targets):
            offset = where.offset + index * size
            exact = size == POINTER_BYTES and offset % POINTER_BYTES == 0 and offset < MAX_PASSED_BYTES
            sources = [self._place(where.base, offset)]
            if not exact:
                sources.append(self._place(where.base, offset + size - 1))
            self._step(target, sources, one_of if exact else entangled)

    def _is_within(self, where: Located, num_bytes: int) -> bool:
        """Whether a parameter holds so many bytes there: what lies behind it is another one."""
        return where.offset >= 0 and where.offset + num_bytes <= self._parameter_bytes[where.base.partition("#")[0]]

    def _store(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        space = "shared" if opcode[0] in ("mbarrier", "stmatrix") else opcodes.space(opcode)
        has_result = opcode[0] == "atom" or (opcode[0] == "mbarrier" and not operands[0].startswith("["))
        at = 1 if has_result else 0
        where = self._located(instruction, at)
        if where is None:
            return
        data = [place for operand in operands[at + 1 :] for place in self._places(operand)]
        if where.base.partition("#")[0] in self._parameters and space in ("param", ""):
            self._store_parameter(instruction, data, where)
            return
        address = self._place(where.base)
        self._use("store", address, space, instruction)
        is_whole = opcode[-1] in _WIDE
        for place in data:
            self.uses.append(Use("data", place, space, instruction, self._index, address))
        for place in data or [_NONE]:
            for memory in _MEMORIES if space != "global" else ():
                self._step(memory, [address, place], Kept(self._reaches(space), memory, is_whole))
        for target in self._targets(operands[0]) if has_result else ():
            self._step(target, [address, *_MEMORIES], Fetched(self._reaches(space), _MEMORIES, is_whole))

    def _store_parameter(self, instruction: Instruction, data: Sequence[str], where: Located) -> None:
        size = _bytes_of(instruction.opcode[-1])
        for index, place in enumerate(data):
            offset = where.offset + index * size
            exact = size == POINTER_BYTES and offset % POINTER_BYTES == 0
            self._step(self._place(where.base, offset), [place], one_of if exact else entangled)

    def _copy(self, instruction: Instruction) -> None:
        """cp.async and its bulk forms: the target's space is the first that the mnemonic names."""
        addresses = [index for index, each in enumerate(instruction.operands) if each.startswith("[")]
        if not addresses:
            return
        kinds: tuple[str, ...]
        spaces = [space for part in instruction.opcode if (space := opcodes.space_of(part)) in ("global", "shared")]
        if len(addresses) == 1 and "prefetch" in instruction.opcode:
            spaces, kinds = ["global"], ("load",)
        elif len(addresses) == 1 and "mbarrier" in instruction.opcode:
            spaces, kinds = ["shared"], ("store",)
        elif len(addresses) > 1 and spaces and "prefetch" not in instruction.opcode:
            spaces, kinds = (spaces * 2)[:2], ("store", "load")
        else:
            self.unknown.append((".".join(instruction.opcode), instruction.line))
            return
        located = [self._located(instruction, index) for index in addresses]
        reached = [self._place(where.base) for where in located if where is not None]
        for place, what, space in zip(reached, kinds, spaces, strict=False):
            self._use(what, place, space, instruction)
        plain = [operand for index, operand in enumerate(instruction.operands) if index not in addresses]
        others = [place for operand in plain for place in self._places(operand)]
        for place in others if kinds[0] == "store" else ():
            self.uses.append(Use("data", place, spaces[0], instruction, self._index, reached[0] if reached else _NONE))
        self._step(_MEMORIES[1], [*reached, *others] or [_NONE], Copied(len(reached)))

    def _located(self, instruction: Instruction, index: int) -> Located | None:
        found = _ADDRESS.fullmatch(instruction.operands[index]) if index < len(instruction.operands) else None
        if found is None or (found[2] and not _LITERAL.fullmatch(found[2])):
            self.unknown.append((".".join(instruction.opcode), instruction.line))
            return None
        base = _NONE if found[1][0].isdigit() else found[1]
        return Located(base, int(found[2].rstrip("U"), 0) if found[2] else 0)

    # -- control
    def _control(self, instruction: Instruction) -> None:
        if instruction.opcode[0].startswith("prefetch"):
            where = self._located(instruction, 0)
            if where is not None:
                self._use("load", self._place(where.base), opcodes.space(instruction.opcode), instruction)
        elif instruction.opcode[0] == "brx":
            self._use("condition", self._source(instruction.operands[0]), "", instruction)
        elif instruction.opcode[0] in ("bar", "barrier", "nanosleep") and "red" not in instruction.opcode:
            for place in (place for operand in instruction.operands for place in self._places(operand)):
                self._use("condition", place, "", instruction)
        elif instruction.opcode[0] in ("bar", "barrier"):
            sources = [place for operand in instruction.operands[1:] for place in self._places(operand)]
            for target in self._targets(instruction.operands[0]):
                self._step(target, sources or [_NONE], entangled)

    def _call(self, instruction: Instruction) -> None:
        operands = list(instruction.operands)
        results = self._passed(operands.pop(0)) if operands and operands[0].startswith("(") else ()
        called = self._module.functions.get(operands[0]) if operands else None
        if called is None or called.body is None:
            self.unknown.append((f"call of {operands[0] if operands else ''}", instruction.line))
            return
        arguments = self._passed(operands[1]) if len(operands) > 1 else ()
        inside = Place(called)
        for at in _OFFSETS:
            for name, parameter in zip(arguments, called.parameter_names, strict=False):
                self._step(inside.of(parameter, at), [self._place(name, at)], one_of)
            for name, result in zip(results, called.result_names, strict=False):
                self._step(self._place(name, at), [inside.of(result, at)], one_of)

    def _passed(self, operand: str) -> Sequence[str]:
        return names_in(operand)


_MEMORIES = ("[local]", "[shared]")
"""What addresses were stored in the local memory of all functions, and in shared memory."""


def gives_result(instruction: Instruction) -> bool:
    """Whether the first operand is what an instruction gives, rather than takes."""
    opcode = instruction.opcode
    match opcodes.kind_of(opcode):
        case "computes" | "loads":
            return True
        case "stores":
            return opcode[0] == "atom" or (opcode[0] == "mbarrier" and not instruction.operands[0].startswith("["))
        case _:
            return opcode[0] in ("bar", "barrier") and "red" in opcode


_NONE = "0"
"""The place of a number."""

_OFFSETS = range(0, MAX_PASSED_BYTES + 1, POINTER_BYTES)


@dataclass(frozen=True)
class Place:
    """Parameters of another function."""

    function: Function

    def of(self, parameter: str, offset: int) -> str:
        return f"{self.function.name}/{parameter}+{offset}"


_RULES: dict[str, Rule] = {
    "mov": one_of,
    "cvta": one_of,
    "add": sum_of,
    "sub": distance,
    "neg": negated,
    "not": negated,
    "mad": product_and_sum,
    "min": larger,
    "max": larger,
    "selp": chosen,
    "setp": compared,
    "set": compared,
    "isspacep": number,
    "shfl": shuffled,
}
_NUM_OPERANDS = {"mov": 2, "cvta": 2, "add": 3, "sub": 3, "neg": 2, "not": 2, "mad": 4, "min": 3, "max": 3, "selp": 4}
_FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "tf32", "e4m3", "e5m2")


def _rule(opcode: tuple[str, ...], operands: Sequence[str]) -> Rule:  # noqa: C901
    name = opcode[0]
    if any(part in _FLOATS for part in opcode) and name not in ("mov", "selp"):
        return entangled
    if name == "cvt":
        return one_of
    if name == "mad" and ("lo" not in opcode and "wide" not in opcode):
        return entangled
    if name in ("add", "sub") and "cc" in opcode:
        return entangled
    if name == "and":
        return _masked(operands)
    if name == "shr" and opcode[-1] in _WIDE and operands[2:] == ("32",):
        return upper_half
    if name == "shr" and (bits := _literal(operands[2])) is not None and bits < MAX_LOW_BITS.bit_length():
        return lambda values: frozenset(shifted_right(form, bits) for form in values[0])
    if name == "or":
        return _first if len(operands) == 3 and _literal(operands[2]) in range(MAX_LOW_BITS + 1) else entangled
    if name in ("setp", "set") and len(operands) < 3:
        return entangled
    if name in ("setp", "set") and len(operands) == 3 and _literal(operands[2]) == 0:
        return _compared_with_nothing if any(part in ("eq", "ne") for part in opcode) else compared
    return _RULES.get(name, entangled) if len(operands) == _NUM_OPERANDS.get(name, len(operands)) else entangled


def _masked(operands: Sequence[str]) -> Rule:
    mask = _literal(operands[2]) if len(operands) == 3 else None
    if mask is None:
        return entangled
    if 0 <= mask <= MAX_LOW_BITS:
        kept = mask
        return lambda values: frozenset(low_bits(form, kept, MAX_LOW_BITS) for form in values[0])
    return _first if -MAX_LOW_BITS - 1 <= mask < 0 else entangled


def _is_part(form: Form) -> bool:
    return any(origin.endswith(HIGH) or SHIFTED in origin for origin, _ in form)


def _first(values: Sequence[Value]) -> Value:
    return values[0]


def _compared_with_nothing(values: Sequence[Value]) -> Value:
    """Whether an address is null: it never is."""
    return frozenset(
        NUMBER if len(form) <= 1 and not is_tangled(form) and not _is_part(form) else tangled([form])
        for form in values[0]
    )


def _literal(operand: str) -> int | None:
    return int(operand.rstrip("U"), 0) if _LITERAL.fullmatch(operand) else None


def _bytes_of(type_name: str) -> int:
    digits = type_name.lstrip("bfsu")
    return int(digits) // 8 if digits.isdigit() else POINTER_BYTES
