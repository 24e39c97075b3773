"""How often the compiler repeats a loop's body."""

from collections.abc import Iterator

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit
from sparsesmith.mutation.subject import Subject
from sparsesmith.program.restrictions.tokens import Token

FACTORS = ("", "1", "2", "3", "4", "8")
"""None: all of it."""


def unrolling(subject: Subject) -> Iterator[Child]:
    """One `#pragma unroll` with another factor, or before a loop that has none."""
    for line in subject.pragmas("unroll"):
        word, *factor = line.tokens
        end = factor[-1].end if factor else word.end
        for wanted in FACTORS:
            if wanted != "".join(token.text for token in factor):
                edit = Edit(word.start, end, f"unroll {wanted}".rstrip())
                yield child(subject, f"unroll {wanted or 'all'}", [edit])
    for loop in _loops_without_factor(subject):
        start = subject.text.rfind("\n", 0, loop.start) + 1
        for wanted in FACTORS[1:]:
            yield child(subject, f"unroll {wanted}", [Edit(start, start, f"#pragma unroll {wanted}\n")])


def _loops_without_factor(subject: Subject) -> Iterator[Token]:
    """Those that begin their line."""
    known = {line.line + 1 for line in subject.pragmas("unroll")}
    for kernel in subject.kernels:
        for token in subject.code[kernel.opening : kernel.closing]:
            if token.text == "for" and token.line not in known:
                start = subject.text.rfind("\n", 0, token.start) + 1
                if not subject.text[start : token.start].strip():
                    yield token
