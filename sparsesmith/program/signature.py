"""Kernel signatures: what the catalogue demands, and whether a program's text declares just that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import HEAD, Argument, Format, Parameters
from sparsesmith.operations import Operation as Computed
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import task_size_names
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.directives import Directives
from sparsesmith.program.restrictions.tokens import SourceTokens, Token, closing
from sparsesmith_proto.message import ElementType, Operation

_ATTRIBUTES = frozenset({"__launch_bounds__", "__maxnreg__"})
_RESTRICT = frozenset({"__restrict__", "__restrict"})


def signature_of(
    format_: Format, parameters: Parameters, operation: Operation, element_type: ElementType
) -> tuple[Argument, ...]:
    """The arguments of every kernel of a program without scratch of its own, in order, element type filled in."""
    computed = operation_named(operation)
    head = HEAD if computed.takes_matrix else task_head(computed)
    tail = (operand.argument for operand in computed.operands)
    return tuple(
        replace(argument, c_type=with_element_type(argument.c_type, element_type))
        for argument in (*head, *format_.arguments(parameters), *tail)
    )


def task_head(operation: Computed) -> tuple[Argument, ...]:
    """The first arguments of every kernel of a task: its axes, in the order in which it names them, and what follows
    from them."""
    return tuple(Argument("int", name, "size", "") for name in task_size_names(operation))


def program_signature(directives: Directives, operation: Operation, element_type: ElementType) -> tuple[Argument, ...]:
    """The arguments of every kernel of a program. Raises InvalidProgram where scratch has another argument's name."""
    arguments = [*signature_of(directives.format, directives.parameters, operation, element_type)]
    for own in directives.scratch:
        if any(own.name == argument.name for argument in arguments):
            raise InvalidProgram(
                f"line {own.line}: there is another argument {own.name!r}", field="scratch", value=own.name
            )
        c_type = own.c_type or ELEMENTS[element_type].c_type
        arguments.append(Argument(f"{c_type}*", own.name, "scratch", "garbage at the start"))
    return tuple(arguments)


def check_signature(source: SourceTokens, kernel: str, expected: Sequence[Argument]) -> None:
    """Raises InvalidProgram unless the program defines `extern "C" __global__ void kernel(...)` once, as expected."""
    definitions = [head for head in _kernel_heads(source.code) if head.name == kernel]
    if len(definitions) != 1:
        raise InvalidProgram(
            f"kernel {kernel}: {len(definitions)} definitions of "
            f'`extern "C" __global__ void {kernel}(...)` found, exactly one is needed',
            field="launch",
            value=kernel,
            limit=1,
        )
    head = definitions[0]
    _check_arguments(kernel, head.arguments, expected)
    _check_macros(source, head)


@dataclass(frozen=True)
class _Parameter:
    """One declared argument, spelled canonically."""

    c_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.c_type} {self.name}".strip()


@dataclass(frozen=True)
class _KernelHead:
    name: str
    arguments: tuple[_Parameter, ...]
    words: frozenset[str]
    """Every name in the head: a macro of such a name would change what is compiled."""
    line: int


def _kernel_heads(code: Sequence[Token]) -> list[_KernelHead]:
    heads = []
    for index, token in enumerate(code):
        if token.text == "extern" and index + 1 < len(code) and code[index + 1].text == '"C"':
            head = _read_head(code, index + 2)
            if head is not None:
                heads.append(head)
    return heads


def _read_head(code: Sequence[Token], position: int) -> _KernelHead | None:
    start = position
    specifiers: list[str] = []
    while position < len(code) and code[position].text != "(" and len(specifiers) <= 3:
        if code[position].text in _ATTRIBUTES and position + 1 < len(code):
            position = closing(code, position + 1) + 1
            continue
        specifiers.append(code[position].text)
        position += 1
    if len(specifiers) != 3 or sorted(specifiers[:2]) != ["__global__", "void"]:
        return None
    end = closing(code, position)
    if end + 1 >= len(code) or code[end + 1].text != "{":
        return None
    arguments = tuple(_read_parameter(part) for part in _split(code[position + 1 : end]))
    words = frozenset(token.text for token in code[start - 2 : end] if token.kind == "name")
    return _KernelHead(specifiers[2], arguments, words, code[position].line)


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]] if tokens else []
    for token in tokens:
        if token.text == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _read_parameter(tokens: Sequence[Token]) -> _Parameter:
    """`float const *__restrict__ x` becomes `const float*` `x`; const of the argument itself makes no difference."""
    words = [token.text for token in tokens if token.text not in _RESTRICT]
    name = words.pop() if words and tokens[-1].kind == "name" and words[-1] not in ("int", "float", "short") else ""
    base = list(takewhile(lambda word: word not in ("*", "&"), words))
    behind = words[len(base) :]
    pointers = "".join(word for word in behind if word != "const")
    constant = "const " if "const" in base and pointers else ""
    return _Parameter(constant + " ".join(word for word in base if word != "const") + pointers, name)


def _check_arguments(kernel: str, found: Sequence[_Parameter], expected: Sequence[Argument]) -> None:
    wanted = [_Parameter(argument.c_type, argument.name) for argument in expected]
    for index in range(max(len(found), len(wanted))):
        declared = found[index] if index < len(found) else None
        needed = wanted[index] if index < len(wanted) else None
        if declared != needed:
            raise InvalidProgram(
                f"kernel {kernel}: argument {index + 1} must be {f'`{needed}`' if needed else 'left out'}, "
                f"{f'`{declared}`' if declared else 'nothing'} is declared; "
                f"the arguments are ({', '.join(map(str, wanted))})",
                field=f"{kernel}.{needed.name if needed else index + 1}",
                value=declared,
                limit=needed,
            )


def _check_macros(source: SourceTokens, head: _KernelHead) -> None:
    """What the text declares must be what is compiled: no macro in the head, no condition around it."""
    depth = 0
    for line in source.preprocessor:
        if line.name in ("define", "undef") and line.tokens and line.tokens[0].text in head.words:
            raise InvalidProgram(
                f"line {line.line}: #{line.name} {line.tokens[0].text} changes the head of kernel {head.name}",
                field="program",
                value=line.tokens[0].text,
            )
        if line.line < head.line:
            depth += line.name in ("if", "ifdef", "ifndef")
            depth -= line.name == "endif"
    if depth:
        raise InvalidProgram(
            f"line {head.line}: kernel {head.name} stands inside #if; it must always be compiled",
            field="program",
            value=head.name,
        )
