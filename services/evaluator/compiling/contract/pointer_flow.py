"""What the addresses in compiled PTX were computed from: a flow of pointers through registers, choices and calls.

A register points into a parameter or a variable where it was loaded from that parameter, holds that variable's address,
or was computed from a register that does. An address computed from two of them (by a difference of pointers, say) is
ambiguous; one that was chosen, on a condition or by the path taken, may be either.

What is loaded from memory points nowhere, and neither does a number. What a function is given by one call it is taken
to be given by all.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

Origin = frozenset[str]
"""What one address was computed from: `kernel/parameter`, or a variable's name. Ambiguous where there are several."""

Origins = frozenset[Origin]
"""The choices that there are for one register."""

MAX_CHOICES = 16
"""Beyond these a register counts as ambiguous."""

POINTER_BYTES = 8
MAX_PASSED_BYTES = 64
"""What lies further behind in a structure that is passed by value is not followed."""

_FUNCTION = re.compile(r"\.(entry|func)\s+(?:\((.*?)\)\s*)?([\w$]+)\s*(?:\((.*?)\))?[^{;]*([{;])", re.DOTALL)
_PARAMETER = re.compile(r"\.param[^,]*?([\w$]+)(?:\[\d*\])?\s*(?:,|$)")
_VARIABLE = re.compile(
    r"^[ \t]*(?:\.(?:visible|extern|weak|common)[ \t]+)?\.(const|global|shared|local)\b([^;={]*)", re.M
)
_VARIABLE_NAME = re.compile(r"([\w$]+)(?:\[\d*\])*\s*$")
_BRACE = re.compile(r"[{}]")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file|section)\b[^\n]*$", re.DOTALL | re.MULTILINE)
_BEFORE_OPCODE = re.compile(r"(?:[{}\s]|[\w$]+:(?!:))*(?:@!?[%\w$]+\s+)?")
_NAME = re.compile(r"(?<![\w.$%])[%A-Za-z_$][\w$]*")
_ADDRESS = re.compile(r"\[\s*([%A-Za-z_$][\w$]*)(?:\s*\+\s*(\d+))?[^\]]*\]")
_STORE = re.compile(r"(?:st|red|atom|discard|multimem|cp\.async\.bulk\.global|cp\.reduce)\b")
_SPACE = re.compile(r"\.(global|shared|local|param)\b")
_CALL = re.compile(r"call(?:\.uni)?\s+(?:\(([^()]*)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^()]*)\))?")
_PARAMETER_ACCESS = re.compile(r"(ld|st)\.param\.[bus]64\s")
_COMPUTES = re.compile(r"(?!(?:ld|tex|atom|st|red|bra|bar|ret|setp|call)\b)[a-z][\w.:]*\s+(?:\{([^}]*)\}|([%\w$]+))")
_CHOICE = re.compile(r"(?:mov|selp)\b")


@dataclass(frozen=True)
class Function:
    """One function of a PTX module."""

    name: str
    is_entry: bool
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    statements: tuple[str, ...]
    """Instructions without labels, guards and comments."""


@dataclass(frozen=True)
class Computed:
    """A place (a register or a parameter of one function) gets a value from others."""

    target: str
    operands: tuple[str, ...]
    is_choice: bool
    """It is one of them, rather than computed from all."""


@dataclass(frozen=True)
class Module:
    functions: Mapping[str, Function]
    variables: Mapping[str, str]
    """State space (`const`, `shared`, ...) of each variable."""


def read_module(ptx: str) -> Module:
    code = _NO_CODE.sub("", ptx)
    functions = {function.name: function for function in _functions(code)}
    declared = ((space, _VARIABLE_NAME.search(rest)) for space, rest in _VARIABLE.findall(code))
    return Module(functions, {name[1]: space for space, name in declared if name})


def stored_origins(module: Module, kernel: str) -> set[Origin]:
    """Origins of all addresses outside shared and local memory that the kernel, or what it calls, may write to."""
    reached = _reached(module, kernel)
    known: defaultdict[str, Origins] = defaultdict(frozenset)
    own = [_place(kernel, parameter) for parameter in module.functions[kernel].parameters]
    known |= {name: frozenset([frozenset([name])]) for name in [*own, *module.variables]}
    _spread([computed for function in reached for computed in _computed(module, function)], known)
    return {
        origin
        for function in reached
        for statement in function.statements
        if (address := _written_address(statement))
        for origin in known[_operand(module, function.name, address)]
    }


def _functions(code: str) -> Iterator[Function]:
    for found in _FUNCTION.finditer(code):
        kind, results, name, parameters, end = found.groups()
        if end == "{":
            takes, gives = (tuple(_PARAMETER.findall(text or "")) for text in (parameters, results))
            yield Function(name, kind == "entry", takes, gives, tuple(_statements(_body(code, found.end()))))


def _body(code: str, start: int) -> str:
    depth = 1
    for brace in _BRACE.finditer(code, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return code[start : brace.start()]
    return code[start:]


def _statements(body: str) -> Iterator[str]:
    for statement in body.split(";"):
        before = _BEFORE_OPCODE.match(statement)
        plain = statement[before.end() if before else 0 :].strip()
        if plain and not plain.startswith("."):
            yield plain


def _reached(module: Module, kernel: str) -> list[Function]:
    """The kernel and all that it calls, directly or not."""
    names, position = [kernel], 0
    while position < len(names):
        calls = map(_CALL.match, module.functions[names[position]].statements)
        names += {call[2] for call in calls if call and call[2] in module.functions}.difference(names)
        position += 1
    return [module.functions[name] for name in names]


def _written_address(statement: str) -> str:
    """The register or variable in a store's address; empty where nothing outside a block's own memory is written."""
    opcode = statement.split(None, 1)[0]
    address = _ADDRESS.search(statement)
    space = _SPACE.search(opcode)
    is_own = space is not None and space[1] != "global"
    return address[1] if address and _STORE.match(opcode) and not is_own else ""


# -- what is computed from what ---------------------------------------------------------------------------------------
def _place(function: str, name: str, offset: int = 0) -> str:
    """A register or a parameter of a function, or the pointer at an offset within one that is a structure."""
    return f"{function}/{name}+{offset}" if offset else f"{function}/{name}"


def _operand(module: Module, function: str, name: str) -> str:
    return name if name in module.variables else _place(function, name)


def _computed(module: Module, function: Function) -> Iterator[Computed]:
    num_calls = 0
    for statement in function.statements:
        call = _CALL.match(statement)
        if call:
            yield from _passed(module, function, call, num_calls)
            num_calls += 1
        elif _PARAMETER_ACCESS.match(statement):
            yield from _moved(module, function, statement, num_calls)
        elif computes := _COMPUTES.match(statement):
            targets = _NAME.findall(computes[1] or computes[2])
            names = _NAME.findall(statement, computes.end())
            operands = tuple(_operand(module, function.name, name) for name in names)
            for target in targets:
                yield Computed(_place(function.name, target), operands, _CHOICE.match(statement) is not None)


def _passed(module: Module, function: Function, call: re.Match[str], number: int) -> Iterator[Computed]:
    """Arguments into a function that is called, results out of it."""
    results, name, arguments = call.groups()
    called = module.functions.get(name)
    if called is None:
        return
    for offset in range(0, MAX_PASSED_BYTES, POINTER_BYTES):
        for place, parameter in zip(_NAME.findall(arguments or ""), called.parameters, strict=False):
            yield Computed(_place(name, parameter, offset), (_slot(function, place, number, offset),), True)
        for place, result in zip(_NAME.findall(results or ""), called.results, strict=False):
            yield Computed(_slot(function, place, number, offset), (_place(name, result, offset),), True)


def _moved(module: Module, function: Function, statement: str, num_calls: int) -> Iterator[Computed]:
    """Between a register and a parameter: the function's own, or a slot of the call before (a result) or ahead."""
    address = _ADDRESS.search(statement)
    registers = _NAME.findall(_ADDRESS.sub("", statement.split(None, 1)[1]))
    if address is None or not registers:
        return
    is_load = statement.startswith("ld")
    name, offset, register = address[1], int(address[2] or 0), _operand(module, function.name, registers[0])
    is_own = name in function.parameters or name in function.results
    place = _place(function.name, name, offset) if is_own else _slot(function, name, num_calls - is_load, offset)
    yield Computed(register, (place,), True) if is_load else Computed(place, (register,), True)


def _slot(function: Function, name: str, call: int, offset: int) -> str:
    """A parameter of one call: the compiler uses their names again."""
    return _place(function.name, f"{name}#{call}", offset)


def _spread(computed: Sequence[Computed], known: defaultdict[str, Origins]) -> None:
    """Adds to what is known until nothing more follows."""
    changed = True
    while changed:
        changed = False
        for step in computed:
            operands = [known[operand] for operand in step.operands if known[operand]]
            if not operands:
                continue
            before = known[step.target]
            found = _bounded(before.union(*operands) if step.is_choice else before | _combined(operands))
            if found != before:
                known[step.target] = found
                changed = True


def _combined(operands: Sequence[Origins]) -> Origins:
    if prod(map(len, operands)) > MAX_CHOICES:
        operands = [_bounded(origins, 1) for origins in operands]
    return frozenset(Origin().union(*chosen) for chosen in product(*operands))


def _bounded(origins: Origins, most: int = MAX_CHOICES) -> Origins:
    return origins if len(origins) <= most else frozenset([Origin().union(*origins)])
