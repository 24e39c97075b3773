"""How far from an imported reference a result may be, where nobody has said what it is a sum of.

    |y - r| <= a (8 max(e, rms(e)) + u (4 |r| + 2 s sqrt(L) max(|r|, rms(r))))

r: the reference in float64, e: |reference in its own type - r|, rms: over the entries of the output, u: the roundoff
of the type, L: how many inputs one entry depends on, found by differentiating the reference at some of them; s: 1
where L is above 64, else 0; a: 1, or as much more as another of torch's own ways to the same result takes (Winograd's
convolution, say), found when the task is imported. The first part is what the reference itself loses, the last what a
plain program loses that adds up so many terms in order, where the reference adds them up in a better one: twice, since
of millions of entries some lose as much. Whole numbers and truth values are exact.
"""

import numpy as np

from sparsesmith.operations.bounds import exact, smallest
from sparsesmith.operations.imported.card import Card, ImportedOperand
from sparsesmith.operations.imported.references import Answer, Result
from sparsesmith.operations.operation import Expected, Float64Array
from sparsesmith.operations.sums import ROUNDOFF
from sparsesmith_proto.message import ElementType

OWN_ERRORS = 8
ROUNDOFFS = 4
SHORT_SUM = 64
SUM_ROUNDOFFS = 2


def expected_of(
    result: Result, element_type: ElementType, num_terms: int, *, is_floating: bool, allowance: float = 1.0
) -> Expected:
    """What is right of one output. `allowance`: a."""
    if not is_floating:
        return exact(result.wide)
    magnitude = np.abs(_finite(result.wide))
    error = np.abs(_finite(result.own) - _finite(result.wide)) * (np.isfinite(result.own) & np.isfinite(result.wide))
    roundings = ROUNDOFFS * magnitude
    if num_terms > SHORT_SUM:
        roundings = roundings + SUM_ROUNDOFFS * np.sqrt(num_terms) * np.maximum(magnitude, _rms(magnitude))
    lost = OWN_ERRORS * np.maximum(error, _rms(error)) + ROUNDOFF[element_type] * roundings
    bound = allowance * lost + smallest(element_type)
    return Expected(result.wide, np.maximum(magnitude, _rms(magnitude)), np.asarray(bound, np.float64))


def right_of(card: Card, operand: ImportedOperand, answer: Answer) -> Expected:
    """What is right of an output of an imported task."""
    return expected_of(
        answer.results[operand.name],
        card.element_type,
        answer.num_terms,
        is_floating=operand.is_floating,
        allowance=card.allowance,
    )


def _finite(array: Float64Array) -> Float64Array:
    """Zeros in the place of what has no distance."""
    return np.where(np.isfinite(array), array, 0.0)


def _rms(array: Float64Array) -> float:
    return float(np.sqrt(np.mean(array**2))) if array.size else 0.0
