"""Counters of memory errors around a job, and GPUs in quarantine."""

import pytest

from services.evaluator.memory_errors import UNWATCHED, Counts, MemoryFaulty, MemoryWatch, changes
from sparsesmith.errors import NotFound
from sparsesmith.transport.connection import connect
from sparsesmith.transport.quarantine import Faulty, Quarantine


class Counters:
    """As a test sets them."""

    def __init__(self, **counts: int) -> None:
        self.counts: Counts = counts

    def read(self) -> Counts:
        return dict(self.counts)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({"corrected": 3, "uncorrected": 0}, ""),
        ({"corrected": 4, "uncorrected": 0}, "corrected errors from 3 to 4"),
        ({"corrected": 0, "uncorrected": 0}, "corrected errors from 3 to 0"),  # The driver was loaded anew.
        ({"corrected": 3}, "uncorrected errors from 0 to unknown"),
        ({"corrected": 5, "uncorrected": 1}, "corrected errors from 3 to 5, uncorrected errors from 0 to 1"),
    ],
)
def test_whatever_moves_is_told(after: dict[str, int], told: str) -> None:
    assert changes({"corrected": 3, "uncorrected": 0}, after) == told


def test_a_job_in_still_memory_counts() -> None:
    reasons: list[str] = []
    with MemoryWatch(Counters(corrected=7), reasons.append).over("job"):
        pass
    with UNWATCHED.over("job"):
        pass
    assert reasons == []


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_a_job_whose_memory_changed_counts_for_nothing_however_it_ended(error: Exception | None) -> None:
    counters, reasons = Counters(uncorrected=0), list[str]()
    watch = MemoryWatch(counters, reasons.append)
    with pytest.raises(MemoryFaulty, match="uncorrected errors from 0 to 2 while job a ran") as caught, watch.over("a"):
        counters.counts = {"uncorrected": 2}
        if error is not None:
            raise error
    assert caught.value.__context__ is error
    assert reasons == ["uncorrected errors from 0 to 2 while job a ran"]


def test_a_gpu_stays_in_quarantine_with_its_first_reason_until_it_is_released(redis_url: str) -> None:
    quarantine = Quarantine(connect(redis_url), clock=lambda: 0)
    quarantine.add("GPU-1", "a", "corrected errors from 0 to 1")
    quarantine.add("GPU-1", "b", "another")
    assert quarantine.all() == [Faulty("GPU-1", "1970-01-01T00:00:00+00:00", "a", "corrected errors from 0 to 1")]
    quarantine.release("GPU-1")
    assert quarantine.uuids() == set()
    with pytest.raises(NotFound):
        quarantine.release("GPU-1")
