"""Constants of a program as nvcc takes them.

NVRTC, which compiled what was graded, lets a kernel read every constant of namespace scope. To nvcc one without a
memory space is the host's: of numbers it takes the value, but tables, structs and references are undefined in device
code. So each gets `__device__`. Functions need nothing: NVRTC, too, refuses those without an execution space.

Not helped: tables that are static members of a struct, which may have no memory space, and constants that a macro of
the program declares.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from sparsesmith.program.restrictions.tokens import Token, closing, tokenize

_SPLICE = "\\\n"
_SPACES = frozenset({"__device__", "__constant__", "__shared__", "__managed__", "__global__", "__host__"})
_MARK = "__device__ "


def with_device_constants(source: str) -> str:
    """The program with `__device__` before `const` or `constexpr` of each constant of namespace scope without one."""
    pieces = source.split(_SPLICE)
    splices = list(accumulate(len(piece) for piece in pieces[:-1]))
    marked, last = [], 0
    for token in _constants(tokenize(source).code):
        place = token.start + len(_SPLICE) * bisect_right(splices, token.start)
        marked += [source[last:place], _MARK]
        last = place
    return "".join([*marked, source[last:]])


def _constants(code: Sequence[Token]) -> Iterator[Token]:
    """The first `const` or `constexpr` of each of their declarations."""
    position = 0
    while position < len(code):
        head, end = _head(code, position)
        texts = {token.text for token in head}
        if not texts & _SPACES and "typedef" not in texts:
            yield from [token for token in head if token.text in ("const", "constexpr")][:1]
        position = _behind(code, head, end)


def _head(code: Sequence[Token], start: int) -> tuple[list[Token], int]:
    """Of a declaration what stands before its value or its body and outside brackets; and where that ends."""
    head: list[Token] = []
    position, angles = start, 0
    while position < len(code):
        token = code[position]
        if token.text in (";", "{", "}") or (token.text == "=" and not angles):
            break
        if token.text in ("(", "["):
            position = closing(code, position)
        elif token.text == "operator":
            position = _next(code, position, "(") - 1
        elif token.text[0] in "<>":
            angles = max(0, angles + token.text.count("<") - token.text.count(">"))
        elif not angles:
            head.append(token)
        position += 1
    return head, position


def _behind(code: Sequence[Token], head: Sequence[Token], end: int) -> int:
    """Where the next declaration begins; what a namespace or `extern "C"` holds lies in namespace scope."""
    if end == len(code):
        return end
    match code[end].text:
        case "=":
            return _next(code, end, ";") + 1
        case "{" if not _is_scope(head):
            return closing(code, end) + 1
        case _:
            return end + 1


def _is_scope(head: Sequence[Token]) -> bool:
    return bool(head) and (head[-1].kind == "string" or any(token.text == "namespace" for token in head))


def _next(code: Sequence[Token], start: int, text: str) -> int:
    """Where it stands outside brackets; the end of the code where it does not."""
    position = start
    while position < len(code) and code[position].text != text:
        position = (closing(code, position) if code[position].text in ("(", "[", "{") else position) + 1
    return min(position, len(code))
