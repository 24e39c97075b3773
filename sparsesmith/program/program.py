"""The kernel program: the contract between policy, user and evaluator. See docs/kernel-programs.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import HEAD, Argument, Format, ParameterValue
from sparsesmith.program.directives import (
    WAIT_INSTRUCTION,
    Launch,
    Requirement,
    ResolvedLaunch,
    is_directive,
    parse_directives,
)
from sparsesmith.program.restrictions.includes import check_includes
from sparsesmith.program.restrictions.rules import check_restrictions
from sparsesmith.program.restrictions.tokens import tokenize
from sparsesmith.program.scratch import Scratch, check_scratch
from sparsesmith.program.signature import check_signature, signature_of
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS, ElementType, Operation

__all__ = ["KernelProgram", "Launch", "ResolvedLaunch", "check_sizes", "launch_names", "parse_program", "signature_of"]

DEVICE_NAMES = ("num_sms", "num_dense_cols")
"""Names that launch expressions may use besides the sizes among the arguments."""


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
    """Of the matrix; see `check_sizes`."""
    scratch: tuple[Scratch, ...] = ()
    """Its own; the format may have more."""


def parse_program(text: str, operation: Operation, element_type: ElementType) -> KernelProgram:
    """A program that keeps the contract for this operation and element type.

    Raises InvalidProgram, with the field, the value and the limit, for everything outside it.
    """
    _check_text(text)
    text = text.replace("\r\n", "\n")
    directives = parse_directives(text)
    source = "\n".join("" if is_directive(line) else line for line in text.split("\n"))
    tokens = tokenize(source)
    check_includes(tokens)
    check_restrictions(tokens)
    given = signature_of(directives.format, directives.parameters, operation, element_type)
    known = launch_names(directives.format, directives.parameters)
    check_scratch(directives.scratch, given, known)
    signature = (*given, *(own.argument(element_type) for own in directives.scratch))
    _check_requirements(directives.requirements, [name for name in known if name not in DEVICE_NAMES])
    for launch in directives.launches:
        _check_names(launch, known)
        launch.check_constants()
        check_signature(tokens, launch.kernel, signature)
        _check_wait(launch, source)
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


def check_sizes(program: KernelProgram, sizes: Mapping[str, int]) -> None:
    """Raises InvalidProgram where one of these sizes is not the one that the program requires."""
    for required in program.requirements:
        name, actual = required.name, sizes.get(required.name, required.value)
        if actual != required.value:
            raise InvalidProgram(
                f"line {required.line}: the program requires {name}={required.value}, this matrix has {actual}",
                field=name,
                value=required.value,
                limit=actual,
            )


def launch_names(format_: Format, parameters: Mapping[str, ParameterValue]) -> tuple[str, ...]:
    """Names that the launch expressions of a program in this format may use."""
    own = (*HEAD, *format_.arguments(parameters))
    return (*(argument.name for argument in own if argument.role == "size"), *DEVICE_NAMES)


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


def _check_wait(launch: Launch, source: str) -> None:
    """A word in time; whether the wait comes early enough is seen when the program runs."""
    if launch.dependency == "programmatic" and WAIT_INSTRUCTION not in source:
        raise InvalidProgram(
            f"launch {launch.kernel}: dependency=programmatic needs `{WAIT_INSTRUCTION}` before the first access to a "
            "vector or to scratch",
            field="dependency",
            value=launch.dependency,
            limit=WAIT_INSTRUCTION,
        )


def _check_requirements(requirements: tuple[Requirement, ...], known: list[str]) -> None:
    for required in requirements:
        if required.name not in known:
            raise InvalidProgram(
                f"line {required.line}: unknown size {required.name!r} (known: {', '.join(known)})",
                field="require",
                value=required.name,
                limit=", ".join(known),
            )


def _check_names(launch: Launch, known: tuple[str, ...]) -> None:
    unknown = sorted(launch.names - set(known))
    if unknown:
        raise InvalidProgram(
            f"launch {launch.kernel}: unknown name {unknown[0]!r} (known: {', '.join(known)})",
            field="launch",
            value=unknown[0],
            limit=", ".join(known),
        )
