"""Which mutators are worth trying: how often one change by each made a measured program faster.

Counts are those of harvests on train-side matrices (`benchmarks/records/h200-harvest*.jsonl.xz`, H200s): single changes
by chance of the tuner's best programs, timed at length in turns with their parents. `benchmarks.tuning.mutator_worth`
counts them again and says what choosing by them brings on matrices that were not counted.
"""

from collections.abc import Mapping
from types import MappingProxyType

GAIN = 1.02
"""A change has won where its parent takes so many times its time."""

DOUBT = 5.0
"""Tries at the operation's mean rate that every mutator is credited with."""

Counts = Mapping[str, tuple[int, int]]
"""By mutator: single changes, and those that won."""

HARVESTED: Mapping[str, Counts] = {
    "spmv": {
        "bins": (230, 12),
        "blocks": (61, 0),
        "bounds": (376, 23),
        "grids": (307, 2),
        "hints": (393, 23),
        "mixtures": (2, 0),
        "odd_lanes": (3, 0),
        "off_grid": (507, 58),
        "staging": (142, 0),
        "unrolling": (245, 9),
        "waits": (264, 7),
    },
    "spmm": {
        "blocks": (3, 0),
        "bounds": (758, 18),
        "grids": (364, 12),
        "hints": (616, 10),
        "mixtures": (8, 0),
        "off_grid": (904, 57),
        "staging": (56, 0),
        "unrolling": (567, 14),
        "waits": (363, 1),
    },
}
"""By operation."""


def worth_by_mutator(counts: Counts) -> Mapping[str, float]:
    """Expected share of single changes that win, of each mutator that was counted, and under "" of any other."""
    tried, won = (sum(pair[place] for pair in counts.values()) for place in (0, 1))
    mean = won / tried
    known = {name: (gained + DOUBT * mean) / (count + DOUBT) for name, (count, gained) in counts.items()}
    return MappingProxyType({**known, "": mean})


WORTH: Mapping[str, Mapping[str, float]] = {name: worth_by_mutator(counts) for name, counts in HARVESTED.items()}
"""By operation; of others nothing is known, and every mutator is as likely."""
