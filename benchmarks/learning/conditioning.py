"""What a policy is shown of a matrix, taken away: another matrix in its place, or none."""

from collections.abc import Sequence
from random import Random
from typing import Literal, TypeVar

from torch import Tensor, nn

from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.prompts.header import HEADER_SIZES

Conditioning = Literal["shuffled", "none"]

Item = TypeVar("Item")


def shuffled(items: Sequence[Item], seed: int = 0) -> list[Item]:
    """Another one in each place; raises ValueError where there is no other."""
    if len(items) < 2:
        raise ValueError(f"shuffled: {len(items)} matrices are there, at least 2 are needed")
    order = list(range(len(items)))
    Random(seed).shuffle(order)
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [items[following[place]] for place in range(len(items))]


def blind(encoder: MatrixEncoder) -> None:
    """Makes all that an encoder says of matrices zero, from now on; what is asked for stays."""

    def only_header(_: nn.Module, __: object, soft: Tensor) -> Tensor:
        seen = soft.clone()
        seen[:, len(HEADER_SIZES) :] = 0
        return seen

    encoder.register_forward_hook(only_header)
