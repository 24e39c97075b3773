"""Programs of an operation's folder.

`T` stands for the element type. A program that also says how it sums may have 16-bit numbers: `SUM_T` is the type of
sums, `WIDE(number)` an element as one, `NARROW(sum)` the way back.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from string import Template

from sparsesmith.elements import ELEMENTS, WIDE_TYPES, sum_c_type
from sparsesmith.errors import InvalidOption
from sparsesmith.operations.operation import Operation, Typed
from sparsesmith_proto.message import ElementType

_CONVERSION = re.compile(r"\b(WIDE|NARROW)\(")
_DIRECTIVES = re.compile(r"(?://@.*\n)*")


def program_texts(package: str, *names: str) -> dict[str, str]:
    """The texts of `programs/<name>.cu.in` beside a module of `package`, in the order given."""
    folder = files(package) / "programs"
    return {name: (folder / f"{name}.cu.in").read_text(encoding="utf-8") for name in names}


def template_texts(places: Mapping[str, str], *names: str) -> dict[str, str]:
    """The texts of `programs/<name>.cu.in` that several tasks share, `$places` filled in, in the order given."""
    return {
        name: Template(text).substitute(places)
        for name, text in program_texts("sparsesmith.operations", *names).items()
    }


def with_element_type(text: str, element_type: ElementType) -> str:
    """The places filled in; a program of 16-bit numbers includes their header behind its directives."""
    element = ELEMENTS[element_type]
    spelled = {"T": element.c_type, "SUM_T": sum_c_type(element_type)}
    filled = re.sub(r"\b(T|SUM_T)\b", lambda found: spelled[found[1]], text)
    filled = _converted(filled, {"WIDE": element.widen, "NARROW": element.narrow})
    directives = _DIRECTIVES.match(filled)
    if not element.header or directives is None or not directives[0]:
        return filled
    return f"{directives[0]}#include <{element.header}>\n{filled[directives.end() :]}"


def programs_for(operation: Operation, element_type: ElementType) -> Mapping[str, str]:
    """The operation's programs with the element type filled in, in order; those that sum in T are for wide types."""
    return {
        name: with_element_type(text, element_type)
        for name, text in operation.programs.items()
        if _is_for(text, element_type)
    }


def element_types_of(operation: Operation) -> tuple[ElementType, ...]:
    """Those that the operation is computed for: as it says; else 16 bits where its naive program says how it sums."""
    if isinstance(operation, Typed):
        return operation.element_types
    naive = operation.programs.get(operation.naive)
    return tuple(name for name in ELEMENTS if naive is not None and _is_for(naive, name))


def _is_for(text: str, element_type: ElementType) -> bool:
    return element_type in WIDE_TYPES or "SUM_T" in text


def check_element_type(operation: Operation, element_type: ElementType) -> None:
    """Raises InvalidOption where a request names one that the operation is not computed for."""
    if element_type not in (known := element_types_of(operation)):
        raise InvalidOption(
            f"element_type is {element_type}: {operation.name} is computed for {', '.join(known)}",
            field="element_type",
            value=element_type,
            limit=", ".join(known),
        )


def _converted(text: str, functions: Mapping[str, str]) -> str:
    """`WIDE(...)` and `NARROW(...)` as calls of these functions; their arguments alone where there is none."""
    while (found := _CONVERSION.search(text)) is not None:
        end = _closing(text, found.end())
        function, inner = functions[found[1]], text[found.end() : end]
        text = text[: found.start()] + (f"{function}({inner})" if function else inner) + text[end + 1 :]
    return text


def _closing(text: str, position: int) -> int:
    """Where the bracket that was opened before `position` closes."""
    depth = 1
    while depth:
        depth += (text[position] == "(") - (text[position] == ")")
        position += 1
    return position - 1
