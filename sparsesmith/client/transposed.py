"""Which of A and A^T is tuned, and the operator from what was found."""

from typing import get_args

import scipy.sparse

from sparsesmith.errors import InvalidOption
from sparsesmith.operator import Operator
from sparsesmith.operator.directions import transposed_matrix
from sparsesmith_proto.api import KernelReport, TransposedOption, TuningOptions


def with_direction(options: TuningOptions | None, transposed: TransposedOption | None) -> TuningOptions:
    """The options with a direction beside them; None: the one that they name. Raises InvalidOption."""
    chosen = options or TuningOptions()
    if transposed is not None and transposed not in get_args(TransposedOption):
        limit = ", ".join(get_args(TransposedOption))
        reason = f"transposed is {transposed!r}: expected {limit}"
        raise InvalidOption(reason, field="transposed", value=transposed, limit=limit)
    chosen = chosen if transposed is None else chosen.model_copy(update={"transposed": transposed})
    _refuse_shared_alone(chosen)
    return chosen


def _refuse_shared_alone(options: TuningOptions) -> None:
    """Raises InvalidOption for A^T alone from A's storage: an operator has a kernel for A."""
    if (options.transposed, options.transposed_storage) == ("yes", "shared"):
        reason = "an operator that shares A's storage multiplies with A, too: transposed='both'"
        raise InvalidOption(
            f"transposed_storage is shared: {reason}", field="transposed_storage", value="shared", limit="copy"
        )


def operator_of(csr: scipy.sparse.csr_matrix, options: TuningOptions, report: KernelReport) -> Operator:
    """Of A, whichever of its directions the report is about."""
    match options.transposed:
        case "yes":
            return Operator(report, transposed_matrix(csr)[0]).T
        case _:
            return Operator(report.model_copy(update={"transposed": None}), csr, transposed=report.transposed)


def refuse_instant(transposed: TransposedOption) -> None:
    """Raises InvalidOption where A^T is asked for, too: what is there before the search is a kernel for A."""
    if transposed != "no":
        reason = "search=instant answers for A only; wait='best' waits for both directions"
        raise InvalidOption(f"transposed is {transposed}: {reason}", field="transposed", value=transposed, limit="no")
