"""Proximal policy optimisation (Schulman et al. 2017) as pure functions on tensors. B sequences, T tokens.

Samples may be a few policy versions old, so three policies meet here: `behaviour` sampled the tokens (its
log-probabilities travelled with the candidate), `proximal` is the policy at the start of this update, and `current` is
being optimised.
Clipping is around the proximal policy; the distance from behaviour to proximal enters as a truncated importance weight
(decoupled PPO; Hilton et al. 2022).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """Bounds of the ratio current / proximal: 1 - low to 1 + high (asymmetric as in DAPO; Yu et al. 2025)."""

    low: float = 0.2
    high: float = 0.28


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the sampled tokens of the batch."""
    return (value_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1)


def importance_weights(proximal_BT: Tensor, behaviour_BT: Tensor, mask_BT: Tensor, cap: float) -> Tensor:
    """min(proximal / behaviour, cap) for each token, from log-probabilities; 1 where the mask is 0."""
    ratio_BT = torch.exp((proximal_BT - behaviour_BT).clamp(-20, 20)).clamp(max=cap)
    return torch.where(mask_BT > 0, ratio_BT, torch.ones_like(ratio_BT))


def policy_loss(
    current_BT: Tensor, proximal_BT: Tensor, weights_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor, clip: Clip
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate (eq. 7), negated, and the share of tokens where the clip was active."""
    ratio_BT = torch.exp((current_BT - proximal_BT).clamp(-20, 20))
    clipped_BT = ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    surrogate_BT = torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)
    active_BT = (ratio_BT * advantages_BT > clipped_BT * advantages_BT).to(mask_BT.dtype)
    return -masked_mean(weights_BT * surrogate_BT, mask_BT), masked_mean(active_BT, mask_BT)


def value_loss(values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor, clip: float) -> Tensor:
    """Squared error to the returns; a step away from the old values beyond `clip` is not rewarded."""
    near_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
    error_BT = torch.maximum((values_BT - returns_BT).square(), (near_BT - returns_BT).square())
    return 0.5 * masked_mean(error_BT, mask_BT)


def kl_to_reference(current_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """KL(current || reference) by the non-negative estimator k3 = r - 1 - log r with r = reference / current."""
    log_ratio_BT = (reference_BT - current_BT).clamp(-20, 20)
    return masked_mean(torch.exp(log_ratio_BT) - 1 - log_ratio_BT, mask_BT)


def program_distance(current_BT: Tensor, proximal_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """KL(proximal || current) of whole programs, in nats a program: the mean over sequences of the sum over tokens of
    r - 1 - log r with r = current / proximal (Schulman, "Approximating KL divergence", 2020: k3).

    The tokens are drawn from the proximal policy, or nearly, so this is the direction that has no importance weight;
    each term is at least 0, and a token that became unlikely adds no more than its log ratio.
    """
    log_ratio_BT = (current_BT - proximal_BT).clamp(max=20)
    distance_BT = torch.exp(log_ratio_BT) - 1 - log_ratio_BT
    return (distance_BT * mask_BT).sum() / max(1, len(mask_BT))


def explained_variance(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns) over the sampled tokens; 0 for constant returns."""
    kept = mask_BT > 0
    returns, residual = returns_BT[kept], returns_BT[kept] - values_BT[kept]
    variance = returns.var(unbiased=False)
    explained = 1 - residual.var(unbiased=False) / variance.clamp(min=1e-8)
    return torch.where(variance > 1e-8, explained, torch.zeros_like(explained))
