"""Which functions of compiled PTX call which: a cycle, or a call through a pointer, has no bound on its stack.

Assemblers of some releases warn of recursion ("cannot be statically determined"), others say nothing.
"""

import itertools
import re
from collections.abc import Iterator, Mapping

_FUNCTION = re.compile(r"\.(?:func|entry)\b")
_NAME = re.compile(r"\s*(?:\([^()]*\)\s*)?([A-Za-z_$][\w$]*)")
_CALL = re.compile(r"\bcall(?:\.uni)?\b\s*(?:\([^()]*\)\s*,\s*)?([%A-Za-z_$][\w$]*)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def has_unbounded_stack(ptx: str) -> bool:
    """Whether a function of the program may call itself, directly or through others, or calls through a pointer."""
    calls = called_functions(ptx)
    return any(name.startswith("%") for names in calls.values() for name in names) or _has_cycle(calls)


def called_functions(ptx: str) -> dict[str, set[str]]:
    """Names of what each function calls; a call through a pointer has the register's name (`%rd1`)."""
    return {name: set(_CALL.findall(body)) for name, body in _functions(_COMMENT.sub("", ptx))}


def _functions(ptx: str) -> Iterator[tuple[str, str]]:
    """Name and body of each; a declaration before the definition has none and gives way to it."""
    starts = [found.end() for found in _FUNCTION.finditer(ptx)]
    for start, end in itertools.pairwise([*starts, len(ptx)]):
        name = _NAME.match(ptx, start)
        if name:
            yield name[1], ptx[name.end() : end]


def _has_cycle(calls: Mapping[str, set[str]]) -> bool:
    """Takes away functions that call no other of the rest: what stays is in a cycle or leads to one."""
    rest = {name: {other for other in names if other in calls} for name, names in calls.items()}
    while leaves := {name for name, names in rest.items() if not names}:
        rest = {name: names - leaves for name, names in rest.items() if name not in leaves}
    return bool(rest)
