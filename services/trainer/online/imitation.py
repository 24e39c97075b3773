"""A supervised term beside the objective of reinforcement learning, by its share of the step."""

from collections.abc import Sequence

import torch
from torch import Tensor


def mixed(rewarded: Sequence[Tensor | None], imitated: Sequence[Tensor | None], share: float) -> list[Tensor | None]:
    """Gradients of a step: (1 - share) of the objective's and `share` of the supervised one's, both as long as the
    objective's. The optimizers normalise: the length of a loss's gradient would say nothing of its share.

    None: a parameter that has no gradient. Where one of the two is nothing, the other's share is all there is.
    """
    length, other = norm(rewarded), norm(imitated)
    scale = share * length / other if other > 0 else 0.0
    return [_sum(own, (1 - share), more, scale) for own, more in zip(rewarded, imitated, strict=True)]


def norm(gradients: Sequence[Tensor | None]) -> float:
    """Of all of them together."""
    squares = [gradient.float().square().sum() for gradient in gradients if gradient is not None]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def _sum(first: Tensor | None, of_first: float, second: Tensor | None, of_second: float) -> Tensor | None:
    if first is None:
        return None if second is None else of_second * second
    return of_first * first if second is None else of_first * first + of_second * second
