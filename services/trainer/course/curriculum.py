"""Which workload is asked next: more of those whose rewards differ, since only differences teach.

A pure function of what was graded so far, of the seed and of how many were asked: a course that is gone on with after a
kill asks what it would have asked.
"""

import random
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from services.trainer.course.lessons import Lesson

RECENT_GROUPS = 2
"""Of a workload, whose spreads count."""
UNSEEN = 0.5
"""Weight of a workload that was not graded yet, in units of reward's spread."""
LEAST = 0.05
"""Weight of one whose rewards were all the same: it comes again, since the policy changes."""


@dataclass(frozen=True)
class Curriculum:
    """Over workloads of different names."""

    lessons: Sequence[Lesson]
    seed: int = 0

    def next(self, number: int, graded: Iterable[tuple[str, Sequence[float]]], busy: Collection[str] = ()) -> Lesson:
        """The `number`-th, counted from 0. `graded`: a workload's name and a group's rewards, in order; `busy`: names
        that are not chosen as long as there are others."""
        weights = self.weights(graded)
        free = [lesson for lesson in self.lessons if lesson.name not in busy] or list(self.lessons)
        chance = random.Random(f"{self.seed}:{number}")
        return chance.choices(free, [weights[lesson.name] for lesson in free])[0]

    def weights(self, graded: Iterable[tuple[str, Sequence[float]]]) -> dict[str, float]:
        """By name."""
        spreads: defaultdict[str, list[float]] = defaultdict(list)
        for name, rewards in graded:
            if rewards:
                spreads[name].append(statistics.pstdev(rewards))
        return {
            lesson.name: max(LEAST, statistics.fmean(spreads[lesson.name][-RECENT_GROUPS:]))
            if spreads[lesson.name]
            else UNSEEN
            for lesson in self.lessons
        }
