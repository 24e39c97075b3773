"""Terms that objectives share, as pure functions on tensors. B sequences, T tokens.

Samples may be a few policy versions old, so three policies meet: `behaviour` sampled the tokens (its log-probabilities
travelled with the candidate), `proximal` is the policy at the start of this update, and `current` is being optimised.
"""

import torch
from torch import Tensor

TELLING_REWARD_STD = 0.05
"""Below this spread of rewards (timing noise alone gives 0.03) the optimizers, which normalise, would blow up what is
noise: steps shrink with the spread, to nothing where the rewards of each group are equal."""


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the sampled tokens of the batch."""
    return (value_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1)


def program_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Sum over the sampled tokens of each sequence, then the mean over sequences."""
    return (value_BT * mask_BT).sum() / max(1, len(mask_BT))


def told(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """How much rewards tell apart, from 0 to 1: within groups, or in the whole batch where everyone is alone."""
    same_BB = (group_B[:, None] == group_B[None, :]).to(reward_B.dtype)
    size_B = same_BB.sum(dim=1)
    shared_B = size_B > 1
    apart_B = (reward_B - same_BB @ reward_B / size_B)[shared_B] if bool(shared_B.any()) else reward_B - reward_B.mean()
    return (apart_B.square().mean().sqrt() / TELLING_REWARD_STD).clamp(max=1)


def ratio(current_BT: Tensor, before_BT: Tensor) -> Tensor:
    """current / before of each token, from log-probabilities; far beyond any that is used it is cut."""
    return torch.exp((current_BT - before_BT).clamp(-20, 20))


def importance_weights(proximal_BT: Tensor, behaviour_BT: Tensor, mask_BT: Tensor, cap: float) -> Tensor:
    """min(proximal / behaviour, cap) for each token, from log-probabilities; 1 where the mask is 0."""
    weights_BT = ratio(proximal_BT, behaviour_BT).clamp(max=cap)
    return torch.where(mask_BT > 0, weights_BT, torch.ones_like(weights_BT))


def explained_variance(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns) over the sampled tokens; 0 for constant returns."""
    kept = mask_BT > 0
    returns, residual = returns_BT[kept], returns_BT[kept] - values_BT[kept]
    variance = returns.var(unbiased=False)
    explained = 1 - residual.var(unbiased=False) / variance.clamp(min=1e-8)
    return torch.where(variance > 1e-8, explained, torch.zeros_like(explained))
