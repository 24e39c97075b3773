"""A layer y = A x whose values are learned, in the pattern of an operator."""

import torch

from sparsesmith.artifacts.launcher import tensor_of
from sparsesmith.operator import Operator


def _values_of(operator: Operator) -> torch.Tensor:
    """Of A in the order of CSR, whichever way it is looked at."""
    values: torch.Tensor = tensor_of((operator.T if operator.is_transposed else operator).to_scipy().data)
    return values


class SparseLayer(torch.nn.Module):
    """y = A x for x of shape [cols] or [cols, columns]; `values` begin as the operator's."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator
        self.values = torch.nn.Parameter(_values_of(operator))
        self._handle, self._transposed = operator.handle, operator.is_transposed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.sparsesmith.product.default(x, self.values, self._handle, self._transposed)
        return found

    def extra_repr(self) -> str:
        return repr(self.operator)
