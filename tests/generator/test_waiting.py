"""Whose turn it is among accepted jobs, and searches that several requests share."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.generator.jobs.waiting import MOST_PASSES, WaitingJobs
from services.generator.orders import AcceptedJob, KernelOrder, fingerprint, work_of
from services.generator.search.joined import JoinedSearches
from sparsesmith_proto.api import KernelReport
from tests.artifacts.answers import make_matrix, make_report
from tests.generator.orders import make_order, make_pattern

REPORT = make_report(make_matrix())


def job(name: str, work: int | None = 1000) -> AcceptedJob:
    order = make_order(make_pattern()).model_copy(update={"work": work})
    return AcceptedJob(name, datetime.now(UTC), order)


def waiting(*jobs: tuple[str, str, int | None]) -> WaitingJobs:
    queue = WaitingJobs()
    for name, client, work in jobs:
        queue.add(job(name, work), client)
    return queue


def taken(queue: WaitingJobs, *running: str) -> str:
    found = queue.take(running)
    assert found is not None
    return found[0].job_id


def test_jobs_of_like_size_go_in_the_order_of_their_arrival() -> None:
    queue = waiting(("first", "", 1000), ("second", "", 900), ("third", "", 1010))
    assert [taken(queue) for _ in range(3)] == ["first", "second", "third"]
    assert queue.take(()) is None


def test_a_small_job_goes_before_a_large_one_and_before_one_of_unknown_size() -> None:
    queue = waiting(("unknown", "", None), ("large", "", 10**9), ("small", "", 1000))
    assert [taken(queue) for _ in range(3)] == ["small", "large", "unknown"]


def test_clients_take_turns_however_many_jobs_one_of_them_has() -> None:
    queue = waiting(*((f"a{number}", "a", 1000) for number in range(5)), ("b", "b", 10**9))
    assert taken(queue, "a") == "b"
    assert taken(queue, "a", "b") == "a0"


def test_a_job_that_let_enough_others_pass_is_next() -> None:
    queue = waiting(("large", "", 10**12))
    for number in range(MOST_PASSES):
        queue.add(job(f"small-{number}"), "")
        assert taken(queue) == f"small-{number}"
    queue.add(job("late"), "")
    assert taken(queue) == "large"


def test_a_runner_for_small_jobs_takes_no_other() -> None:
    queue = waiting(("large", "", 10**12), ("unknown", "", None))
    assert queue.take((), most_work=10**6) is None
    queue.add(job("small"), "")
    found = queue.take((), most_work=10**6)
    assert found is not None
    assert found[0].job_id == "small"


def test_what_a_job_is_worth_is_no_part_of_what_was_asked_for() -> None:
    order = make_order(make_pattern())
    assert fingerprint(order) == fingerprint(order.model_copy(update={"work": work_of(order, make_pattern())}))


def test_an_order_of_an_earlier_release_is_read() -> None:
    order = make_order(make_pattern())
    text = order.model_dump_json(exclude={"work"})
    assert KernelOrder.model_validate_json(text) == order


class Searching:
    """A search that ends when it is told."""

    def __init__(self) -> None:
        self.begun = 0
        self.released = asyncio.Event()

    async def __call__(self) -> KernelReport:
        self.begun += 1
        await self.released.wait()
        return REPORT


def test_equal_requests_share_one_search() -> None:
    async def run() -> int:
        searching, joined = Searching(), JoinedSearches()
        order = make_order(make_pattern())
        tasks = [asyncio.create_task(joined.run(order, searching)) for _ in range(3)]
        await asyncio.sleep(0)
        searching.released.set()
        assert await asyncio.gather(*tasks) == [REPORT] * 3
        await joined.run(order, searching)
        return searching.begun

    assert asyncio.run(run()) == 2, "one for three at a time, one more afterwards"


def test_who_asks_for_something_else_or_for_no_cached_answer_searches_alone() -> None:
    async def run() -> int:
        searching, joined = Searching(), JoinedSearches()
        order = make_order(make_pattern())
        others = [make_order(make_pattern(), candidates=9), order.model_copy(update={"use_cache": False})]
        tasks = [asyncio.create_task(joined.run(each, searching)) for each in (order, *others)]
        await asyncio.sleep(0)
        searching.released.set()
        await asyncio.gather(*tasks)
        return searching.begun

    assert asyncio.run(run()) == 3


def test_a_search_that_is_cancelled_decides_nothing_for_those_who_joined_it() -> None:
    async def run() -> int:
        searching, joined = Searching(), JoinedSearches()
        order = make_order(make_pattern())
        first, second, third = (asyncio.create_task(joined.run(order, searching)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.sleep(0.01)
        searching.released.set()
        assert list(await asyncio.gather(second, third)) == [REPORT] * 2
        return searching.begun

    assert asyncio.run(run()) == 2
