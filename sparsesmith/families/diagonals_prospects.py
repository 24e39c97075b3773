"""Prospects of the families whose programs hold the offsets of the diagonals."""

from collections.abc import Callable, Iterator, Mapping

from sparsesmith.families.diagonals import MAX_LITERAL_DIAGONALS
from sparsesmith.families.prospects import Prospect, Values, Work, combine, estimate, loads, number
from sparsesmith.families.residency_prospects import keeps, unkept_share


def _size(work: Work) -> float:
    """Bytes of the stored values."""
    return float(work.shape.diagonals * work.rows * work.element_bytes)


def _literal(work: Work, values: Values, rows: int) -> Prospect:
    """All loads at once: a chain of one, and a little more for each batch that the registers cannot hold."""
    slots = float(work.shape.diagonals * work.rows)
    chain = 1 + work.shape.diagonals / 24
    return Prospect(
        estimate(work, _size(work) * unkept_share(values), slots * 6 / 32, chain, work.rows / rows),
        {"offsets": work.shape.listed_diagonals, **values},
    )


def _dia_literal(work: Work) -> Iterator[Prospect]:
    if work.shape.diagonals > MAX_LITERAL_DIAGONALS:
        return
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    slices = (0,) if work.rows < 30_000 else (0, 128)
    for values in combine(slice=slices, block=blocks, load=loads(work), keep=keeps(_size(work))):
        yield _literal(work, values, 1)


def _dia_literal_wide(work: Work) -> Iterator[Prospect]:
    if work.shape.diagonals > MAX_LITERAL_DIAGONALS:
        return
    for values in combine(rows=(4, 2), block=(128, 64, 256), load=loads(work), keep=keeps(_size(work))):
        yield _literal(work, values, number(values, "rows"))


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {
    "dia_literal": _dia_literal,
    "dia_literal_wide": _dia_literal_wide,
}
