"""How much of Redis matrices take, and for how long."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.matrix.values import fixed_values
from sparsesmith.transport import shelf
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.shelf import ShelfLimits
from sparsesmith_proto.kernel import Workload
from tests.matrix.patterns import patterns

PATTERN = pattern_from_indices(3, 4, [0, 0, 2], [1, 3, 0])


def key_of(pattern: Pattern) -> str:
    return f"sparsesmith:pattern:{pattern.digest}"


def workload_of(pattern: Pattern, values: str | None = None) -> Workload:
    return Workload(pattern=pattern.digest, operation="spmv", element_type="float32", values=values)


def scattered(seed: int, nnz: int = 20_000) -> Pattern:
    """A pattern that nothing compresses."""
    random = np.random.default_rng(seed)
    return pattern_from_indices(10**7, 10**7, random.integers(0, 10**7, nnz), random.integers(0, 10**7, nnz))


def banded(num_rows: int) -> Pattern:
    rows = np.arange(num_rows)
    return pattern_from_indices(
        num_rows, num_rows, np.repeat(rows, 2), np.stack([rows, (rows + 7) % num_rows], 1).flatten()
    )


def age(connection: Redis, pattern: Pattern, seconds: float) -> None:
    """As if its last use were that much longer ago."""
    connection.zincrby(shelf.EXPIRIES, -seconds, key_of(pattern))


@pytest.mark.parametrize(
    ("pattern", "most_bytes"),
    [
        (pattern_from_indices(16_000_000, 16_000_000, [15_999_999], [3]), 1000),
        (banded(300_000), 300_000),
        (scattered(0), 8 * 20_000 + 2000),
        (pattern_from_indices(10, 10, [0], [9]), 1000),
    ],
    ids=["one nonzero", "banded", "scattered", "small"],
)
def test_a_pattern_takes_memory_for_what_it_holds_and_comes_back(
    pattern: Pattern, most_bytes: int, redis_connection: Redis
) -> None:
    store = PatternStore(redis_connection)
    store.put(pattern)
    assert redis_connection.memory_usage(key_of(pattern), samples=0) < most_bytes
    assert store.num_bytes() < most_bytes
    found = store.get(pattern.digest)
    np.testing.assert_array_equal(found.row_offsets, pattern.row_offsets)
    np.testing.assert_array_equal(found.col_indices, pattern.col_indices)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=patterns())
def test_every_pattern_comes_back(pattern: Pattern, redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    assert store.get(store.put(pattern)).digest == pattern.digest


def test_equal_values_take_little_and_others_what_they_take(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    for numbers, most_bytes in ((np.ones(100_000), 10_000), (np.random.default_rng(0).normal(size=1000), 9000)):
        values = fixed_values(numbers, "float64")
        store.put_values(values)
        assert redis_connection.memory_usage(f"sparsesmith:values:{values.digest}", samples=0) < most_bytes
        np.testing.assert_array_equal(store.get_values(values.digest).array, values.array)


def test_patterns_and_values_of_an_earlier_release_are_read_and_outlive_later_users(redis_connection: Redis) -> None:
    values = fixed_values([1, 2, 3], "float32")
    redis_connection.hset(
        key_of(PATTERN),
        mapping={
            "shape": "3 4",
            "row_offsets": PATTERN.row_offsets.astype("<i4").tobytes(),
            "col_indices": PATTERN.col_indices.astype("<i4").tobytes(),
        },
    )
    fields = {"element_type": "float32", "values": values.array.astype("<f4").tobytes()}
    redis_connection.hset(f"sparsesmith:values:{values.digest}", mapping=fields)
    store = PatternStore(redis_connection)
    assert store.get(PATTERN.digest).digest == PATTERN.digest
    assert store.get_values(values.digest).digest == values.digest
    store.put(PATTERN, "j1")
    store.release(workload_of(PATTERN), "j1")
    assert store.get(PATTERN.digest).digest == PATTERN.digest
    assert store.num_bytes() > 0, "it is counted once it is used"


def test_a_matrix_goes_with_its_last_user(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    values = fixed_values([1, 2, 3], "float32")
    workload = workload_of(PATTERN, values.digest)
    for job in ("j1", "j2"):
        store.put(PATTERN, job)
        store.put_values(values, job)
    store.release(workload, "j1")
    assert store.get(PATTERN.digest).digest == PATTERN.digest
    store.release(workload, "j1")
    assert store.get_values(values.digest).digest == values.digest
    store.release(workload, "j2")
    for get, digest in ((store.get, PATTERN.digest), (store.get_values, values.digest)):
        with pytest.raises(NotFound):
            get(digest)
    assert store.num_bytes() == 0
    assert set(redis_connection.keys("*")) <= {shelf.TOTAL.encode()}


def test_a_job_that_is_taken_up_again_holds_what_it_needs(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    store.put(PATTERN, "cancelled")
    store.hold(workload_of(PATTERN), "taken up")
    store.release(workload_of(PATTERN), "cancelled")
    assert store.get(PATTERN.digest).digest == PATTERN.digest
    store.hold(workload_of(scattered(1)), "of a matrix that is gone")


def test_the_total_is_bounded_and_what_is_there_is_not_refused(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection, ShelfLimits(max_bytes=400_000))
    kept = [scattered(seed) for seed in range(2)]
    for pattern in kept:
        store.put(pattern, "j")
    with pytest.raises(Unavailable, match="more would be beyond 400000") as caught:
        store.put(scattered(2), "j")
    assert (caught.value.field, caught.value.limit) == ("max_stored_bytes", "400000")
    store.put(kept[0], "another")
    store.put(PATTERN, "j")
    store.release(workload_of(kept[1]), "j")
    store.put(scattered(2), "j")
    assert store.num_bytes() < 400_000


def test_room_is_made_of_what_was_not_used_for_long_and_no_unfinished_job_needs(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection, ShelfLimits(max_bytes=600_000, keep_s=1000))
    oldest, needed, old = (scattered(seed) for seed in range(3))
    for pattern, job in ((oldest, "ended"), (needed, "unfinished"), (old, "ended")):
        store.put(pattern, job)
    redis_connection.zadd("sparsesmith:jobs:unfinished", {"unfinished": 1})
    for pattern, seconds in ((oldest, 3000), (needed, 2500), (old, 2000)):
        age(redis_connection, pattern, seconds)
    store.put(scattered(3), "new")
    with pytest.raises(NotFound):
        store.get(oldest.digest)
    store.put(scattered(4), "new")
    with pytest.raises(NotFound):
        store.get(old.digest)
    assert store.get(needed.digest).digest == needed.digest
    with pytest.raises(Unavailable):
        store.put(scattered(5), "new")


def test_what_has_expired_or_never_came_is_no_longer_counted(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection, ShelfLimits(max_bytes=250_000))
    store.put(scattered(0), "j")
    redis_connection.delete(key_of(scattered(0)))
    age(redis_connection, scattered(0), 8 * 24 * 3600)
    store.put(scattered(1), "j")
    assert 160_000 < store.num_bytes() < 200_000
    redis_connection.delete(key_of(scattered(1)))
    with pytest.raises(NotFound):
        store.get(scattered(1).digest)
    assert store.num_bytes() == 0
