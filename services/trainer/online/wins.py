"""The best program that was measured of each workload, whoever wrote it: what is imitated beside what is rewarded.

Families, mutators and users' searches find programs that the policy would not sample for long; its own finds are
forgotten after one update. Both stay here, one a workload, until a faster one comes.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable

from services.trainer.online.batch import UsableRecord

MOST_WORKLOADS = 1024
"""Beyond it the workload goes whose win is the oldest."""


class Wins:
    """By workload and kind of device; times of two kinds do not compare."""

    def __init__(self) -> None:
        self._best: OrderedDict[tuple[str, str], UsableRecord] = OrderedDict()

    def __len__(self) -> int:
        return len(self._best)

    def offer(self, found: UsableRecord) -> bool:
        """Keeps it where it passed, beats the library's best routine and is the best known of its workload; whether it
        is kept, also where it was before."""
        record = found.record
        if found.median_us is None or found.median_us >= record.best_baseline_us:
            return False
        key = record.workload.model_dump_json(), record.device.kind
        known = self._best.get(key)
        if known is not None and known.record.record_id == record.record_id:
            return True
        if known is not None and known.median_us is not None and known.median_us <= found.median_us:
            return False
        self._best[key] = found
        self._best.move_to_end(key)
        while len(self._best) > MOST_WORKLOADS:
            self._best.popitem(last=False)
        return True

    def chosen(self, count: int, chance: random.Random) -> list[UsableRecord]:
        """Some of them, each at most once."""
        return chance.sample(list(self._best.values()), min(count, len(self._best)))

    def state(self) -> tuple[str, ...]:
        """Records as JSON, for a checkpoint."""
        return tuple(each.record.model_dump_json() for each in self._best.values())

    def take(self, records: Iterable[UsableRecord]) -> None:
        """What a checkpoint had, in the place of what is here."""
        self._best.clear()
        for each in records:
            self.offer(each)
