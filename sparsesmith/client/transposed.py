"""Which of A and A^T is tuned, and the operator from what was found."""

from collections.abc import Sequence
from typing import Literal, get_args

import scipy.sparse

from sparsesmith.errors import InvalidOption
from sparsesmith.operator import Operator
from sparsesmith.operator.directions import transposed_matrix
from sparsesmith_proto.api import KernelReport

Transposed = Literal["no", "yes", "both"]
"""A, A^T, both."""


def directions(csr: scipy.sparse.csr_matrix, transposed: Transposed) -> list[scipy.sparse.csr_matrix]:
    """The matrices to tune for, A first. Raises InvalidOption."""
    match transposed:
        case "no":
            return [csr]
        case "yes":
            return [transposed_matrix(csr)[0]]
        case "both":
            return [csr, transposed_matrix(csr)[0]]
        case _:
            limit = ", ".join(get_args(Transposed))
            raise InvalidOption(
                f"transposed is {transposed!r}: expected {limit}", field="transposed", value=transposed, limit=limit
            )


def operator_of(csr: scipy.sparse.csr_matrix, transposed: Transposed, reports: Sequence[KernelReport]) -> Operator:
    """Of A, from the reports of its directions."""
    if transposed == "yes":
        return Operator(reports[0], transposed_matrix(csr)[0]).T
    return Operator(reports[0], csr, transposed=reports[1] if transposed == "both" else None)


def refuse_instant(transposed: Transposed) -> None:
    """Raises InvalidOption where A^T is asked for, too: what is there before the search is a kernel for A."""
    if transposed != "no":
        reason = "search=instant answers for A only; wait='best' waits for both directions"
        raise InvalidOption(f"transposed is {transposed}: {reason}", field="transposed", value=transposed, limit="no")
