"""Which mutators are worth trying: how often one change by each made a measured program faster.

Counts are those of a harvest on train-side matrices (`benchmarks/records/h200-harvest.jsonl.xz`, an H200): single
changes of the tuner's best programs, timed at length in turns with their parents. `benchmarks.tuning.mutator_worth`
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
        "bins": (32, 0),
        "blocks": (34, 0),
        "bounds": (86, 9),
        "grids": (59, 0),
        "hints": (62, 1),
        "off_grid": (110, 14),
        "staging": (22, 0),
        "unrolling": (65, 2),
        "waits": (46, 1),
    },
    "spmm": {
        "bounds": (88, 2),
        "grids": (39, 1),
        "hints": (60, 2),
        "mixtures": (3, 0),
        "off_grid": (115, 4),
        "staging": (13, 0),
        "unrolling": (81, 0),
        "waits": (36, 0),
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
