"""Which share of a matrix is worth keeping in the L2."""

from sparsesmith.families.axes import PERCENT_KEPT
from sparsesmith.families.estimates.cost import L2_BYTES, Values, near, number
from sparsesmith.formats.format import ParameterValue

KEPT_BYTES = 25e6
"""About half of the L2: data that the two halves of the chip both read lies in it twice."""
TRUST_IN_KEEPING = 0.5


def keeps(matrix_bytes: float) -> tuple[ParameterValue, ...]:
    """Percentages to try: none for a matrix that stays in the L2 by itself, or so large that little of it would."""
    if not L2_BYTES / 2 < matrix_bytes < 8 * L2_BYTES:
        return (0,)
    return (*near(100 * KEPT_BYTES / matrix_bytes, PERCENT_KEPT[1:], 3), 0)


def unkept_share(values: Values) -> float:
    """Share of the matrix that is expected to come from memory."""
    return 1 - TRUST_IN_KEEPING * number(values, "keep") / 100
