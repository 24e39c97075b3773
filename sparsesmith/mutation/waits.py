"""Where a launch that starts early waits for the one before: what stands before overlaps with its end."""

from collections.abc import Iterator, Sequence

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit
from sparsesmith.mutation.phrases import statements
from sparsesmith.mutation.subject import Subject, is_named
from sparsesmith.program.directives import WAIT_INSTRUCTION
from sparsesmith.program.restrictions.tokens import Token

WAIT = f'asm volatile("{WAIT_INSTRUCTION};" ::: "memory");'
_GUARDED = ("input", "inout", "output", "scratch")
"""Roles of what may not be touched before the wait."""


def waits(subject: Subject) -> Iterator[Child]:
    """The wait at the start, a statement earlier or later, or as late as may be."""
    if not subject.starts_early:
        return
    kernel = next(each for each in subject.kernels if each.name == subject.program.launches[0].kernel)
    code = subject.code
    body = statements(code, kernel.opening + 1, kernel.closing)
    places = [index for index, span in enumerate(body) if is_wait(code[span[0] : span[1]])]
    if len(places) != 1 or _count(code[kernel.opening : kernel.closing]) != 1:
        return
    own = places[0]
    latest = _latest(subject, body, own)
    wanted = {"wait first": 0, "wait earlier": own - 1, "wait later": own + 2, "wait last": latest}
    taken = {own, own + 1}
    for change, place in wanted.items():
        if 0 <= place <= latest and place not in taken:
            taken.add(place)
            yield child(subject, change, _moved(subject, body, own, place))


def is_wait(tokens: Sequence[Token]) -> bool:
    return len(tokens) > 1 and tokens[0].text == "asm" and _count(tokens) == 1


def _count(tokens: Sequence[Token]) -> int:
    return sum(token.kind == "string" and WAIT_INSTRUCTION in token.text for token in tokens)


def _latest(subject: Subject, body: Sequence[tuple[int, int]], own: int) -> int:
    """The number of the first statement after the wait that touches what has to be waited for, itself or by a function
    that was defined before."""
    guarded = {name for name, argument in subject.arguments.items() if argument.role in _GUARDED}
    for index, span in enumerate(body):
        if any(is_named(subject.code, place, guarded) for place in range(*span)):
            if index > own:
                return index
            if (function := _function(subject.code[slice(*span)])) is not None:
                guarded.add(function)
    return own


def _function(statement: Sequence[Token]) -> str | None:
    """The name of a function that is defined within the kernel: `auto fetch = [&](int panel) {`."""
    words = [token.text for token in statement[:4]]
    return words[1] if words[:1] == ["auto"] and words[2:] == ["=", "["] else None


def _moved(subject: Subject, body: Sequence[tuple[int, int]], own: int, place: int) -> list[Edit]:
    """The wait before the statement number `place`."""
    code, text = subject.code, subject.text
    first, last = code[body[own][0]], code[body[own][1] - 1]
    line = text.rfind("\n", 0, first.start) + 1
    end = last.end + 1 if text[last.end : last.end + 1] == "\n" else last.end
    # Behind the statement before, so that a pragma stays with the loop that follows it.
    target = code[body[place - 1][1] - 1].end if place else code[body[0][0] - 1].end
    return [Edit(line, end, ""), Edit(target, target, f"\n  {WAIT}")]
