"""Prospects of the family that renumbers rows and columns: what an order saves of the gather of x, and what the copy of
x and the scattered writes of y cost.

Estimates of the other families leave the gather out, which all of them share in an order that is kept. So an order is
compared with the user's own by times with the gather in both, and the ratio is put on the scale of those estimates.
"""

from collections.abc import Iterator
from dataclasses import replace

from sparsesmith.families.estimates.cost import L2_BYTES_A_US, LAUNCH_US, Prospect, Work
from sparsesmith.families.estimates.scatter import SECTOR_BYTES, sectors_a_nonzero
from sparsesmith.families.spmv import row_bins_prospects
from sparsesmith.formats.building.numbering import MOVES_ROWS, NUMBERINGS, Numbering

WORTH = 1.1
"""Times what the user's order is expected to take, beyond which another one is not tried."""
MATRIX_SHARE = 0.7
"""Of the time without the gather at least so much is left in any order: values and 16-bit columns."""


def row_bins(work: Work) -> Iterator[Prospect]:
    """Those of `row_bins` on the renumbered matrix, for each order that may be worth its copies."""
    kept_us = min((each.estimated_us for each in row_bins_prospects.row_bins(work)), default=0.0)
    with_gather_us = kept_us + gather_us(work)
    for numbering in NUMBERINGS:
        copies_us = moving_us(work, numbering)
        if MATRIX_SHARE * kept_us + copies_us > WORTH * with_gather_us:
            continue
        ordered = replace(work, statistics=work.statistics.numbered(numbering))
        extra_us = copies_us + gather_us(ordered)
        for prospect in row_bins_prospects.row_bins(ordered):
            ratio = (prospect.estimated_us + extra_us) / with_gather_us
            if ratio <= WORTH:
                yield prospect.with_parameter("numbering", numbering, kept_us * ratio)


def gather_us(work: Work) -> float:
    """Of the sectors of x that blocks of neighbouring nonzeros read from the L2."""
    sectors = work.nnz * sectors_a_nonzero(work.statistics.pattern, work.element_bytes)
    return sectors * SECTOR_BYTES / L2_BYTES_A_US


def moving_us(work: Work, numbering: Numbering) -> float:
    """Of the launch that copies x, a sector a column, and where rows move, of writes of y that are a sector each."""
    num_cols, moved_rows = work.statistics.pattern.num_cols, work.rows if numbering in MOVES_ROWS else 0
    num_bytes = num_cols * (4 + SECTOR_BYTES + work.element_bytes) + moved_rows * SECTOR_BYTES
    return LAUNCH_US + num_bytes / L2_BYTES_A_US
