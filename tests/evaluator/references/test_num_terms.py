"""How many inputs one result of a reference depends on."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch

from services.evaluator.references.problem import Given
from services.evaluator.references.runner import num_terms

Tensors = Sequence[torch.Tensor]


class Reference:
    """Of one result."""

    def __init__(self, result: Callable[[Tensors], torch.Tensor]) -> None:
        self._result = result

    def run(self, values: Tensors) -> tuple[torch.Tensor, ...]:
        return (self._result(values),)

    def inputs(self, seed: int, sizes: Mapping[str, int]) -> list[Given]:
        raise NotImplementedError(seed, sizes)


def upper(size: int) -> torch.Tensor:
    return torch.rand(size, size, generator=torch.Generator().manual_seed(0)).triu() + torch.eye(size)


@pytest.mark.parametrize(
    ("result", "least", "most"),
    [
        (lambda values: values[0] @ values[1], 64, 128),
        (lambda values: torch.triu(values[0] @ values[1]), 20, 128),
        (lambda values: values[0] * 0, 1, 1),
        (lambda values: values[0] + values[1], 2, 2),
    ],
    ids=["a product", "a product of triangles", "zeros", "a sum"],
)
def test_a_result_that_is_not_zero_tells_how_many_inputs_one_depends_on(
    result: Callable[[Tensors], torch.Tensor], least: int, most: int
) -> None:
    given = [upper(64), upper(64)] if least != 64 else [torch.rand(64, 64), torch.rand(64, 64)]
    assert least <= num_terms(Reference(result), given) <= most
