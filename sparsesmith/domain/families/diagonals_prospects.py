"""Prospects of the families whose programs hold the offsets of the diagonals."""

from collections.abc import Callable, Iterator, Mapping

from sparsesmith.domain.families.diagonals import MAX_LITERAL_DIAGONALS
from sparsesmith.domain.families.prospects import L2_BYTES, Prospect, Values, Work, combine, estimate, loads, number
from sparsesmith.domain.formats.format import ParameterValue


def _keeps(work: Work) -> tuple[ParameterValue, ...]:
    """MiB to keep in the L2: a matrix that fits stays there by itself, of a huge one too small a part would."""
    size = work.shape.diagonals * work.rows * work.element_bytes
    return (0, 24, 16, 32, 8) if L2_BYTES / 2 < size < 8 * L2_BYTES else (0,)


def _literal(work: Work, values: Values, rows: int) -> Prospect:
    """All loads at once: a chain of one, and a little more for each batch that the registers cannot hold."""
    slots = float(work.shape.diagonals * work.rows)
    chain = 1 + work.shape.diagonals / 24
    kept = 0.5 * number(values, "keep") * 2**20
    return Prospect(
        estimate(work, slots * work.element_bytes - kept, slots * 6 / 32, chain, work.rows / rows),
        {"offsets": work.shape.listed_diagonals, **values},
    )


def _dia_literal(work: Work) -> Iterator[Prospect]:
    if work.shape.diagonals > MAX_LITERAL_DIAGONALS:
        return
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    slices = (0,) if work.rows < 30_000 else (0, 128)
    for values in combine(slice=slices, block=blocks, load=loads(work), keep=_keeps(work)):
        yield _literal(work, values, 1)


def _dia_literal_wide(work: Work) -> Iterator[Prospect]:
    if work.shape.diagonals > MAX_LITERAL_DIAGONALS:
        return
    for values in combine(rows=(4, 2), block=(128, 64, 256), load=loads(work), keep=_keeps(work)):
        yield _literal(work, values, number(values, "rows"))


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {
    "dia_literal": _dia_literal,
    "dia_literal_wide": _dia_literal_wide,
}
