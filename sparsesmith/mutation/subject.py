"""A program to be changed, as the project's own readers see it, and the problem that it is for."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sparsesmith.errors import InvalidOption
from sparsesmith.families.family import FamilyInstance
from sparsesmith.formats.format import Argument
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.mutation.phrases import Phrase
from sparsesmith.program.directives import Launch, is_directive
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith.program.restrictions.tokens import PreprocessorLine, SourceTokens, Token, closing, tokenize
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.message import ElementType, Operation

_HEAD = Phrase('extern "C" __global__ void')
_LAUNCH_BOUNDS = "__launch_bounds__"
_ATTRIBUTES = (_LAUNCH_BOUNDS, "__maxnreg__")


@dataclass(frozen=True)
class Kernel:
    """A kernel's definition; places count tokens of the code."""

    name: str
    bounds: tuple[int, int] | None
    """Its `__launch_bounds__` or `__maxnreg__`: the name, and past the closing bracket."""
    opening: int
    """The bracket before its first statement."""
    closing: int
    """The bracket after its last."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Made by `subject_of`."""

    text: str
    """Within the contract; no line is spliced."""
    matrix: Pattern | None
    """None: of a task."""
    operation: Operation
    element_type: ElementType
    num_dense_cols: int
    instance: FamilyInstance | None
    """The family and the parameters that wrote the text; None: another hand has been at it."""
    program: KernelProgram

    @property
    def pattern(self) -> Pattern:
        """Of a program for a matrix. Raises TypeError."""
        if self.matrix is None:
            raise TypeError(f"{self.operation} has no matrix")
        return self.matrix

    @cached_property
    def source(self) -> SourceTokens:
        return tokenize(self.text)

    @property
    def code(self) -> Sequence[Token]:
        return self.source.code

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """Of every kernel, by name."""
        program = self.program
        found = signature_of(program.format, program.parameters, self.operation, self.element_type)
        return {argument.name: argument for argument in found}

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those that are launched, in the order of the text."""
        launched = {launch.kernel for launch in self.program.launches}
        return tuple(kernel for kernel in self._definitions() if kernel.name in launched)

    @property
    def starts_early(self) -> bool:
        """Whether the first launch may begin before the one before it has ended."""
        return self.program.launches[0].dependency == "programmatic"

    @property
    def launch_lines(self) -> Sequence[tuple[int, int, Launch]]:
        """Where the line of each launch begins and ends, in characters."""
        lines, start = [], 0
        for line in self.text.split("\n"):
            if is_directive(line) and line.split()[1:2] == ["launch"]:
                lines.append((start, start + len(line)))
            start += len(line) + 1
        return [(*place, launch) for place, launch in zip(lines, self.program.launches, strict=True)]

    def launches_of(self, kernel: str) -> list[tuple[int, int, Launch]]:
        return [line for line in self.launch_lines if line[2].kernel == kernel]

    def pragmas(self, name: str) -> Iterator[PreprocessorLine]:
        """`#pragma name ...` lines."""
        for line in self.source.preprocessor:
            if line.name == "pragma" and line.tokens and line.tokens[0].text == name:
                yield line

    def has(self, kernel: Kernel, *names: str) -> bool:
        """Whether any of these names stands between a kernel's brackets, but as a member."""
        return any(is_named(self.code, place, names) for place in range(kernel.opening, kernel.closing))

    def _definitions(self) -> Iterator[Kernel]:
        code = self.code
        for head in _HEAD.find(code):
            place, bounds = head.past, None
            while code[place].text in _ATTRIBUTES:
                past = closing(code, place + 1) + 1
                bounds, place = (place, past), past
            opening = closing(code, place + 1) + 1
            yield Kernel(code[place].text, bounds, opening, closing(code, opening))


def is_named(code: Sequence[Token], place: int, names: Container[str]) -> bool:
    """Whether a token is one of these names, and no member as the `x` of `blockIdx.x`."""
    return code[place].text in names and code[place - 1].text not in (".", "->")


def subject_of(
    text: str,
    matrix: Pattern | None,
    operation: Operation,
    element_type: ElementType,
    num_dense_cols: int = 1,
    instance: FamilyInstance | None = None,
) -> Subject:
    """Raises InvalidProgram for a text outside the contract, InvalidOption for one whose lines are spliced."""
    if "\\\n" in text or "\r" in text:
        raise InvalidOption("a program with spliced lines is not changed", field="program", limit="plain lines")
    program = parse_program(text, operation, element_type)
    return Subject(text, matrix, operation, element_type, num_dense_cols, instance, program)
