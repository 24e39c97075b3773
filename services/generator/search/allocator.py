"""Which source may propose the next batch: the one that is worth most a second, as far as is known.

The tuner's first candidates are fixed, since nothing is known before them. Afterwards each source is a bandit's arm: a
batch wins where it lowers the best time by what is worthwhile, by so much, in so many seconds; arms are chosen by
Thompson sampling, so a source that never wins gets ever less and none is owed a share. (Chapelle and Li 2011; gains
count by their size, as in Cicirello and Smith's max-K-armed bandit 2005.)
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from services.generator.search.standing import Ledger, Standing, Turn
from sparsesmith_proto.api import SourceName

FIXED_CANDIDATES = 16
"""Of the tuner's: its gains lie there."""

WORTHWHILE = 0.01
"""A batch wins where the logarithm of the best time falls by this."""

LEAST_HOPE = 0.001
"""A source is left alone whose next batch is expected to lower it by less than this."""

TRIAL_CANDIDATES = 4
"""A batch of a source that has not won yet."""


@dataclass(frozen=True)
class Prior:
    """What is believed of a source before this search, worth so many batches."""

    wins: float
    losses: float
    gain: float
    """Of a batch that wins."""
    seconds: float
    """Of a batch."""


PRIORS: Mapping[SourceName, Prior] = {
    "families": Prior(wins=1.0, losses=5.0, gain=0.02, seconds=0.5),
    "policy": Prior(wins=0.5, losses=14.0, gain=0.03, seconds=1.0),
    "edits": Prior(wins=0.5, losses=9.5, gain=0.02, seconds=1.0),
    "mutate": Prior(wins=0.5, losses=9.5, gain=0.02, seconds=0.5),
    "text": Prior(wins=0.5, losses=9.5, gain=0.03, seconds=10.0),
    "endpoint": Prior(wins=0.5, losses=9.5, gain=0.03, seconds=10.0),
}
"""After the first 16 of the tuner's. Shipped policies were ahead of the tuner on none of 98 workloads, the present one
on none of 18 at equal seconds: it is worth one batch, by which one that was trained since shows whether it is better.
Of 232 changed winners two were faster by 2 %: worth a few batches.
The last two are asked by `refine` alone, which asks no allocator."""


@dataclass(frozen=True)
class Belief:
    """What is expected of a source's next batch."""

    wins: float
    losses: float
    gain: float
    seconds: float

    @property
    def expected_gain(self) -> float:
        return self.gain * self.wins / (self.wins + self.losses)


class Allocator:
    """Choices are reproducible: the same seed and the same standing give the same source."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def next(self, sources: Sequence[SourceName], standing: Standing) -> SourceName | None:
        """One of these. None: no batch of theirs is worth its time."""
        if "families" in sources and standing.of("families").num_proposed < FIXED_CANDIDATES:
            return "families"
        hopeful = [source for source in sources if _has_hope(source, standing)]
        return max(hopeful, key=lambda source: self._sampled(belief(source, standing)), default=None)

    def _sampled(self, belief: Belief) -> float:
        """A gain a second that the source may have."""
        return self._random.betavariate(belief.wins, belief.losses) * belief.gain / belief.seconds


def belief(source: SourceName, standing: Standing) -> Belief:
    """The prior, which counts as one batch for what a batch gains and takes, and what was seen since."""
    prior, turns = PRIORS[source], _free_turns(source, standing.of(source))
    won = [turn.gain for turn in turns if turn.gain >= WORTHWHILE]
    return Belief(
        wins=prior.wins + len(won),
        losses=prior.losses + len(turns) - len(won),
        gain=(prior.gain + sum(won)) / (1 + len(won)),
        seconds=(prior.seconds + standing.of(source).seconds) / (1 + len(standing.of(source).turns)),
    )


def batch_size(source: SourceName, standing: Standing, most: int) -> int:
    """Candidates of a source's next batch: few, where it has not won yet."""
    has_won = any(turn.gain >= WORTHWHILE for turn in standing.of(source).turns)
    return most if source == "families" or has_won else min(most, TRIAL_CANDIDATES)


def _has_hope(source: SourceName, standing: Standing) -> bool:
    """The tuner knows by itself when it has none."""
    return source == "families" or belief(source, standing).expected_gain >= LEAST_HOPE


def _free_turns(source: SourceName, ledger: Ledger) -> list[Turn]:
    """Without those that were fixed: what comes first gains most, whoever proposes it."""
    num_fixed = FIXED_CANDIDATES if source == "families" else 0
    before = accumulate((turn.num_candidates for turn in ledger.turns), initial=0)
    return [turn for turn, num_before in zip(ledger.turns, before, strict=False) if num_before >= num_fixed]
