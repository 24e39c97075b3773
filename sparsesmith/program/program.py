"""The kernel program: the contract between policy, user and evaluator. See docs/kernel-programs.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import Argument, Format, NoFormat, ParameterValue
from sparsesmith.operations import operation_named
from sparsesmith.program.directives import (
    Directives,
    Launch,
    Requirement,
    check_directives,
    parse_directives,
    without_directives,
)
from sparsesmith.program.restrictions.includes import check_includes
from sparsesmith.program.restrictions.rules import check_restrictions
from sparsesmith.program.restrictions.tokens import tokenize
from sparsesmith.program.scratch import Scratch
from sparsesmith.program.signature import check_signature, program_signature
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS, ElementType, Operation


@dataclass(frozen=True)
class KernelProgram:
    """A program that keeps the contract."""

    text: str
    format: Format
    parameters: Mapping[str, ParameterValue]
    """Complete: every parameter of the format."""
    launches: tuple[Launch, ...]
    """In launch order."""
    source: str
    """What the compiler gets: directives blanked, so that line numbers hold and equal code compiles once."""
    signature: tuple[Argument, ...]
    """The arguments of every kernel, in order, C types filled in: of the format, the operation, and its own scratch."""
    requirements: tuple[Requirement, ...] = ()
    """Of the matrix or the task; see `check_sizes`."""
    scratch: tuple[Scratch, ...] = ()
    """Its own; the format may have more."""


def parse_program(text: str, operation: Operation, element_type: ElementType) -> KernelProgram:
    """A program that keeps the contract for this operation and element type.

    Raises InvalidProgram, with the field, the value and the limit, for everything outside it.
    """
    _check_text(text)
    text = text.replace("\r\n", "\n")
    directives = parse_directives(text)
    source = without_directives(text)
    check_directives(directives, source, operation_named(operation))
    tokens = tokenize(source)
    check_includes(tokens)
    check_restrictions(tokens)
    signature = program_signature(directives, operation, element_type)
    for launch in directives.launches:
        check_signature(tokens, launch.kernel, signature)
    return _program(text, directives, source, signature)


def unchecked_program(text: str, operation: Operation, element_type: ElementType) -> KernelProgram:
    """As `parse_program`, with nothing refused for what the kernel's text says: for tests of what holds a program
    beneath these checks, and nowhere else. Raises InvalidProgram for directives that are none."""
    directives = parse_directives(text)
    return _program(text, directives, without_directives(text), program_signature(directives, operation, element_type))


def _program(text: str, directives: Directives, source: str, signature: tuple[Argument, ...]) -> KernelProgram:
    return KernelProgram(
        text=text,
        format=directives.format,
        parameters=directives.parameters,
        launches=directives.launches,
        source=source,
        signature=signature,
        requirements=directives.requirements,
        scratch=directives.scratch,
    )


def check_sizes(program: KernelProgram | Directives, sizes: Mapping[str, int]) -> None:
    """Raises InvalidProgram where one of these sizes is not the one that the program requires."""
    subject = "task" if isinstance(program.format, NoFormat) else "matrix"
    for required in program.requirements:
        name, actual = required.name, sizes.get(required.name, required.value)
        if actual != required.value:
            raise InvalidProgram(
                f"line {required.line}: the program requires {name}={required.value}, this {subject} has {actual}",
                field=name,
                value=required.value,
                limit=actual,
            )


def _check_text(text: str) -> None:
    if len(text) > MAX_PROGRAM_CHARACTERS:
        raise InvalidProgram(
            f"the program has {len(text)} characters: at most {MAX_PROGRAM_CHARACTERS}",
            field="program",
            value=len(text),
            limit=MAX_PROGRAM_CHARACTERS,
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidProgram(
            "the program is not UTF-8 text", field="program", value=f"position {error.start}"
        ) from error
