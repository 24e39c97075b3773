"""Atomics in a program's text. What the machine code holds decides (`deterministic=true`); texts of which it is known
beforehand need not be compiled."""

import re
from collections.abc import Callable

from sparsesmith_proto.kernel import Workload

_UNORDERED = re.compile(r"\batomic(?:Add|Sub|Exch|CAS)\w*\s*\(|\b(?:red|atom)\.(?:\w|\.|::)*(?:f16|f32|f64|cas|exch)")


def may_be_unordered(text: str) -> bool:
    """Whether atomics may decide the bits of its result: additions, of whole numbers too, exchanges and swaps."""
    return _UNORDERED.search(text) is not None


def is_ordered(text: str) -> bool:
    """The opposite."""
    return not may_be_unordered(text)


def allowed_texts(workload: Workload) -> Callable[[str], bool]:
    """Which texts are worth compiling: none with atomics where equal bits are asked for, nor where the output is
    scaled, which a sum that is added piece by piece cannot be."""
    return is_ordered if workload.deterministic or workload.alpha_beta else _anything


def _anything(_: str) -> bool:
    return True
