"""Whether a policy version's probe samples are worse than another's: one-sided tests within each prompt, added up.

Under "both versions write equally well" it is chance which of a prompt's samples came from which version. Over all ways
to deal N values x of a prompt into n of the candidate and N - n of the reference, the candidate's sum has mean
n mean(x) and variance n (N - n) / (N (N - 1)) sum((x - mean(x))^2). Sums and variances add up over prompts:

    z = sum(n mean(x) - candidate's sum) / sqrt(sum of variances)

For values 0 and 1 this is the test of Mantel and Haenszel (1959) for stratified two-by-two tables, with the continuity
correction of a half: shares of rare failures take few values, and two failures of 64 are no evidence. For rewards it
is Mantel's extension (1963), without. Prompts differ far more than versions do, and drop out. z is
nearly normal: above `Z_LIMIT` lie some two probes in 100 of an equally good version. What limit and tolerances find and
what they let pass is simulated in tests/generator/test_comparison.py.

Not protected against: a loss on prompts that the probe set does not hold, and a loss below what its samples can show.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsesmith_proto.policy import LogprobGap, Probe

Z_LIMIT = 2.0
"""Standard deviations: 2.3 % of a normal distribution lie above."""
SHARE_TOLERANCE = 0.02
"""Of samples. A smaller loss of compile or pass share is not held against a version, however sure."""
REWARD_TOLERANCE = 0.05
"""A smaller loss of mean reward is not, either: a device that times the same programs twice differs as much."""


@dataclass(frozen=True)
class Measure:
    """How losses of a measure are told from chance."""

    tolerance: float
    continuity: float


SHARE = Measure(SHARE_TOLERANCE, continuity=0.5)
REWARD = Measure(REWARD_TOLERANCE, continuity=0.0)


@dataclass(frozen=True)
class GapLimits:
    """How far engine and trainer may be apart beyond what they are for the shipped version, in nats."""

    per_token: float = 0.02
    per_program: float = 0.15


def complaint(candidate: Probe, references: Sequence[Probe], limits: GapLimits) -> str | None:
    """Why a version must not serve, in words; None where it may.

    Worse than any of the references in compile share, pass share or mean reward; or engine and trainer disagree about
    its log-probabilities. The first reference is the shipped version.
    """
    found = [_gap(candidate.gap, references[0].gap, limits)]
    found += [each for reference in references for each in _losses(candidate, reference)]
    told = [each for each in found if each is not None]
    return "; ".join(told) or None


def shortfall(
    candidate: Sequence[Sequence[float]], reference: Sequence[Sequence[float]], continuity: float = 0.0
) -> tuple[float, float]:
    """What the candidate lacks against the reference, prompt by prompt: the mean over its samples, and z.

    `continuity` is taken off what it lacks in all, before that is held against chance.
    """
    lack = variance = 0.0
    for own, other in zip(candidate, reference, strict=True):
        pooled = np.array([*own, *other], np.float64)
        size, total = len(own), len(pooled)
        lack += size * pooled.mean() - math.fsum(own)
        variance += size * (total - size) / (total * (total - 1)) * float(((pooled - pooled.mean()) ** 2).sum())
    mean = sum(
        math.fsum(own) - len(own) * float(np.mean(other)) for own, other in zip(candidate, reference, strict=True)
    )
    z = (lack - continuity) / math.sqrt(variance) if variance > 1e-12 else 0.0
    return -mean / sum(map(len, candidate)), z


def _losses(candidate: Probe, reference: Probe) -> list[str | None]:
    name = "the shipped version" if reference.version == 0 else f"version {reference.version}, which serves"
    own, other = candidate.prompts, reference.prompts
    return [
        _loss("compile share", [each.compiled for each in own], [each.compiled for each in other], SHARE, name),
        _loss("pass share", [each.passed for each in own], [each.passed for each in other], SHARE, name),
        _loss("mean reward", [each.rewards for each in own], [each.rewards for each in other], REWARD, name),
    ]


def _loss(
    what: str,
    candidate: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    measure: Measure,
    name: str,
) -> str | None:
    lack, z = shortfall(candidate, reference, measure.continuity)
    if lack <= measure.tolerance or z <= Z_LIMIT:
        return None
    return f"{what} is {lack:.3f} below that of {name} (z = {z:.1f}, limit {Z_LIMIT})"


def _gap(candidate: LogprobGap | None, shipped: LogprobGap | None, limits: GapLimits) -> str | None:
    if candidate is None or shipped is None:
        return "the trainer was not asked for its log-probabilities"
    allowed = shipped.per_token + limits.per_token, shipped.per_program + limits.per_program
    if candidate.per_token <= allowed[0] and candidate.per_program <= allowed[1]:
        return None
    return (
        f"engine and trainer do not compute the same policy: {candidate.per_token:.3f} nats a token, "
        f"{candidate.per_program:.3f} a program apart (limits {allowed[0]:.3f}, {allowed[1]:.3f})"
    )
