"""What a register may hold, as far as addresses go: sums of addresses' origins, with numbers left out.

A **form** says how often each origin is in a value: `{x: 1}` is a place in x, `{x: 1, y: -1}` a distance between
buffers, `{}` a number. A value computed from addresses in another way (bits of one, a product) is **tangled**: it tells
something of where buffers lie. A register holds one of several forms, by the path that was taken.

Variables of the program itself (shared, local, constant) keep no secret: what is tangled of them alone is a number.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

Form = frozenset[tuple[str, int]]
"""(origin, how often); 0 marks what the value is tangled of."""

Value = frozenset[Form]
"""Empty while nothing is known."""

NUMBER: Form = frozenset()
NUMBERS: Value = frozenset([NUMBER])

MAX_FORMS = 16
"""Beyond these a register counts as tangled of all."""

MAX_TIMES = 2
VARIABLE = "&"
"""How the origin of a variable's address begins."""

HIGH = "^"
"""How the origin of the upper half of an address ends."""

SHIFTED = ">"
"""Stands between the origin of an address that was shifted right and the number of bits."""


def address_of(origin: str) -> Value:
    return frozenset([frozenset([(origin, 1)])])


def tangled(forms: Iterable[Form]) -> Form:
    return frozenset((origin, 0) for form in forms for origin, _ in form if not origin.startswith(VARIABLE))


def is_tangled(form: Form) -> bool:
    return any(times == 0 for _, times in form)


def total(left: Form, right: Form, sign: int = 1) -> Form:
    """left + right, or left - right."""
    if not left and sign > 0:
        return right
    if not right:
        return left
    if is_tangled(left) or is_tangled(right):
        return tangled([left, right])
    times = dict(left)
    for origin, number in right:
        times[origin] = times.get(origin, 0) + sign * number
    if any(abs(number) > MAX_TIMES for number in times.values()):
        return tangled([left, right])
    return frozenset((origin, number) for origin, number in times.items() if number)


def high_half(form: Form) -> Form:
    return form if is_tangled(form) else frozenset((origin + HIGH, number) for origin, number in form)


def shifted_right(form: Form, bits: int) -> Form:
    """Of a plain address; what is left of its least bits tells the alignment only."""
    if not form:
        return form
    plain = all(times and not origin.endswith(HIGH) and SHIFTED not in origin for origin, times in form)
    return frozenset((f"{origin}{SHIFTED}{bits}", times) for origin, times in form) if plain else tangled([form])


def low_bits(form: Form, mask: int, most: int) -> Form:
    """What a mask leaves of an address: a number where it keeps no more than the bits of `most`."""
    for origin, times in form:
        shift = origin.rpartition(SHIFTED)[2] if SHIFTED in origin else "0"
        if not times or origin.endswith(HIGH) or mask << int(shift) > most:
            return tangled([form])
    return NUMBER


def joined_halves(low: Form, high: Form) -> Form:
    return low if high == high_half(low) else tangled([low, high])


def difference(left: Form, right: Form) -> Form:
    """What a comparison tells: nothing of where buffers lie if both are places in one."""
    form = total(left, right, -1)
    return NUMBER if form == NUMBER else tangled([form])


def bounded(value: Value) -> Value:
    return value if len(value) <= MAX_FORMS else frozenset([_merged(value)])


def _merged(forms: Iterable[Form]) -> Form:
    """Tangled of all: of variables as well, so that a store to one of them and another is not taken for plain."""
    return frozenset((origin, 0) for form in forms for origin, _ in form)


def combinations(values: Sequence[Value]) -> Iterable[tuple[Form, ...]]:
    """One form for each operand, in all ways."""
    if prod(map(len, values)) > MAX_FORMS * MAX_FORMS:
        values = [frozenset([_merged(value)]) if len(value) > 1 else value for value in values]
    return product(*values)
