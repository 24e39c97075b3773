"""Programs that break their contract by one change, with what the contract says of them: examples of repair.

The message is the very one that the evaluator gives. A fault that the contract does not refuse is none.
"""

import re
from collections.abc import Callable, Mapping
from random import Random

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.directives import PREFIX
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType, Operation

Fault = Callable[[str, Random], str | None]
"""A program with one fault; None where this one has no place for it."""


def _without_format(program: str, chance: Random) -> str | None:
    return _without_line(program, chance, "format")


def _without_launch(program: str, chance: Random) -> str | None:
    return _without_line(program, chance, "launch")


def _without_fact(program: str, chance: Random) -> str | None:
    return _without_line(program, chance, "let")


def _without_line(program: str, chance: Random, directive: str) -> str | None:
    lines = program.split("\n")
    found = [number for number, line in enumerate(lines) if line.startswith(f"{PREFIX} {directive} ")]
    if not found:
        return None
    del lines[chance.choice(found)]
    return "\n".join(lines)


def _other_parameter(program: str, chance: Random) -> str | None:
    """A word or number of the format line that its format does not know."""
    line = next((each for each in program.split("\n") if each.startswith(f"{PREFIX} format ")), "")
    found = list(re.finditer(r"=(\w+)", line))
    if not found:
        return None
    match = chance.choice(found)
    other = chance.choice(["0", "-1", "1000000", "u8", "wide"])
    return program.replace(line, f"{line[: match.start(1)]}{other}{line[match.end(1) :]}", 1)


def _without_argument(program: str, chance: Random) -> str | None:
    """One argument of a kernel less."""
    heads = list(re.finditer(r"__global__[^{;]*?\w+\(([^)]*,[^)]*)\)\s*\{", program))
    if not heads:
        return None
    head = chance.choice(heads)
    arguments = head[1].split(",")
    del arguments[chance.randrange(len(arguments))]
    return f"{program[: head.start(1)]}{','.join(arguments).strip()}{program[head.end(1) :]}"


def _other_kernel(program: str, chance: Random) -> str | None:
    """A launch of a kernel that is not there."""
    return re.sub(rf"^({PREFIX} launch \w+)", r"\1_kernel", program, count=1, flags=re.MULTILINE)


def _other_size(program: str, chance: Random) -> str | None:
    """A launch line with a size that has no such name."""
    return re.sub(rf"^({PREFIX} launch .*?)\bnum_(rows|blocks|slices)\b", r"\1n", program, count=1, flags=re.MULTILINE)


FAULTS: Mapping[str, Fault] = {
    "no format": _without_format,
    "no launch": _without_launch,
    "a fact less": _without_fact,
    "another parameter": _other_parameter,
    "an argument less": _without_argument,
    "another kernel": _other_kernel,
    "another size": _other_size,
}


def refusal(program: str, operation: Operation, element_type: ElementType, circumstances: Circumstances) -> str | None:
    """What the contract says against it; None where it is legal."""
    try:
        text = bind_numbers(program, {}, circumstances, operation, element_type).text
        parse_program(text, operation, element_type)
    except InvalidProgram as error:
        return error.message
    return None


def broken(
    program: str, operation: Operation, element_type: ElementType, circumstances: Circumstances, chance: Random
) -> tuple[str, str] | None:
    """The program with a fault, and what is said against it; None where no fault takes."""
    for name in chance.sample(list(FAULTS), len(FAULTS)):
        text = FAULTS[name](program, chance)
        if text is None or text == program:
            continue
        message = refusal(text, operation, element_type, circumstances)
        if message is not None:
            return text, message
    return None
