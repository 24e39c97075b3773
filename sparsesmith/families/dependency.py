"""Programmatic dependent launch as an axis of every family: the kernel starts while the one before it drains.

The wait stands before the first statement that touches a vector or scratch, so that launch latency and what the kernel
reads of the matrix until there overlap with the end of whatever ran before on the stream.

Source: CUDA programming guide, "Programmatic dependent launch and synchronization".
"""

import re
from dataclasses import replace

from sparsesmith.families.family import Choice, Family
from sparsesmith.formats.format import SPMM_TAIL, SPMV_TAIL, OneOf
from sparsesmith.program.directives import WAIT_INSTRUCTION, parse_directives
from sparsesmith_proto.message import Operation

DEPENDENCY = OneOf("full", ("full", "programmatic"))

_RESTRICTED_INPUT = re.compile(r"(const (?:float|double)\*) __restrict__ (x|b)\b")
"""A restricted input counts as constant, and the compiler moves its loads up past the wait."""

_WAIT = f'  asm volatile("{WAIT_INSTRUCTION};" ::: "memory");'


def with_dependency(family: Family) -> Family:
    """The family with one parameter more: how its first launch waits for what ran before."""

    def write(choice: Choice) -> str:
        text = family.write(choice)
        return started_early(text, family.operation) if choice.word("dependency") == "programmatic" else text

    return replace(family, parameters={**family.parameters, "dependency": DEPENDENCY}, write=write)


def started_early(text: str, operation: Operation) -> str:
    """A family's program whose first launch need not wait for the kernel before it, with the wait it then needs."""
    lines = text.split("\n")
    launch = next(number for number, line in enumerate(lines) if line.startswith("//@ launch"))
    lines[launch] += " dependency=programmatic"
    head = next(number for number, line in enumerate(lines) if "__global__" in line)
    lines[head] = _RESTRICTED_INPUT.sub(r"\1 \2", lines[head])
    lines.insert(_first_touch(lines, head + 1, _dependent_names(text, operation)), _WAIT)
    return "\n".join(lines)


def _dependent_names(text: str, operation: Operation) -> tuple[str, ...]:
    """Arguments that kernels before may still be writing, or reading while this one would write."""
    directives = parse_directives(text)
    tail = SPMV_TAIL if operation == "spmv" else SPMM_TAIL
    arguments = (*directives.format.arguments(directives.parameters), *tail)
    return tuple(argument.name for argument in arguments if argument.role in ("input", "output", "scratch"))


def _first_touch(lines: list[str], start: int, names: tuple[str, ...]) -> int:
    """The line of the outermost statement that first mentions one of the names, its pragmas included."""
    mention = re.compile(rf"(?<![.\w])({'|'.join(names)})\b")
    number = next(number for number in range(start, len(lines)) if mention.search(lines[number]))
    while not re.match(r"  [^ }]", lines[number]):
        number -= 1
    while lines[number - 1].startswith("  #pragma"):
        number -= 1
    return number
