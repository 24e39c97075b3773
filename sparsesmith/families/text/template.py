"""Templates of CUDA text: what a family writes stands in a `.cu.in` file beside it, with named places.

    //: rows                              a section begins; what stands before the first is a comment
    int row = blockIdx.x * $block + threadIdx.x;
    $wait                                 alone on its line: a block of text in its place, or no line at all
    sum += $value(j) * x[$load(cols + j)];    a place with an argument, which may have places of its own
    const $T* next = ${where}values;      braces where a letter follows

Python knows the places (`program.Choice`), never the text around them: nothing is searched for in finished CUDA.
"""

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

Macro = Callable[..., str]
"""Text for the arguments of a place."""

Places = Mapping[str, object]
"""What stands in each place: a `Macro`, or text (or a number)."""

_MARK = re.compile(r"^//: (\w+)\n", re.MULTILINE)
_PLACE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ALONE = re.compile(r"( *)(\$\w+)(\(.*\))?")


def cuda_beside(module: str) -> Mapping[str, str]:
    """The sections of the `.cu.in` file beside a module, by name. `module`: its dotted name."""
    package, _, name = module.rpartition(".")
    text = (files(package) / f"{name}.cu.in").read_text(encoding="utf-8")
    _, *pieces = _MARK.split(text)
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def fill(template: str, **places: object) -> str:
    """The template with every place filled. A place alone on its line takes a whole block of text, or no line."""
    lines = []
    for line in template.strip("\n").split("\n"):
        alone = _ALONE.fullmatch(line)
        if alone is None or not _is_one_place(alone[3] or ""):
            lines.append(_filled(line, places))
        elif block := _filled(line.lstrip(), places):
            lines.append("\n".join(alone[1] + inner for inner in block.split("\n")))
    return "\n".join(lines)


def _is_one_place(argument: str) -> bool:
    return not argument or _closing(argument, 1) == len(argument) - 1


def _filled(text: str, places: Places) -> str:
    pieces, position = [], 0
    while (found := _PLACE.search(text, position)) is not None:
        pieces.append(text[position : found.start()])
        place, position = places[found[1] or found[2]], found.end()
        if callable(place):
            end = _closing(text, position + 1)
            pieces.append(place(*map(str.strip, _split(_filled(text[position + 1 : end], places)))))
            position = end + 1
        else:
            pieces.append(str(place))
    return "".join(pieces) + text[position:]


def _closing(text: str, position: int) -> int:
    """Where the bracket that was opened before `position` closes."""
    depth = 1
    while depth:
        depth += (text[position] in "([{") - (text[position] in ")]}")
        position += 1
    return position - 1


def _split(arguments: str) -> list[str]:
    """Arguments by the commas outside brackets."""
    pieces, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces
