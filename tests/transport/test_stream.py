"""Reward records on a real stream: delivered until acknowledged, once each."""

from sparsesmith.transport.connection import Redis
from sparsesmith.transport.stream import GROUP, STREAM, RewardStream
from tests.transport.messages import make_record


def publish(stream: RewardStream, *names: str) -> None:
    for name in names:
        assert stream.publish(make_record(name))


def names(stream: RewardStream, consumer: str = "trainer", count: int = 10) -> list[str]:
    return [delivery.record.record_id for delivery in stream.read(consumer, count, block_ms=1)]


def test_records_come_in_order_and_whole(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection)
    publish(stream, "a", "b", "c")
    assert names(stream, count=2) == ["a", "b"]
    (last,) = stream.read("trainer", 2, block_ms=1)
    assert last.record == make_record("c")
    assert names(stream) == []


def test_a_record_is_published_once(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection)
    assert stream.publish(make_record("a"))
    assert not stream.publish(make_record("a"))
    assert names(stream) == ["a"]


def test_what_was_acknowledged_is_gone(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection)
    publish(stream, "a", "b")
    first, _ = stream.read("trainer", 10, block_ms=1)
    stream.acknowledge([first.entry_id])
    stream.acknowledge([])
    assert stream.length() == 1
    assert names(RewardStream(redis_connection)) == ["b"]


def test_a_restarted_trainer_gets_what_it_had_not_acknowledged_first(redis_connection: Redis) -> None:
    before = RewardStream(redis_connection)
    publish(before, "a", "b", "c")
    assert names(before) == ["a", "b", "c"]
    publish(before, "d")
    after = RewardStream(redis_connection)
    assert names(after, count=2) == ["a", "b"]
    assert names(after, count=2) == ["c"]
    assert names(after, count=2) == ["d"]
    assert names(after) == []


def test_a_running_trainer_is_not_given_what_it_holds_however_long_it_holds_it(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection, claim_after_s=0)
    publish(stream, "a", "b")
    assert names(stream) == ["a", "b"]
    assert names(stream) == []


def test_what_a_dead_trainer_held_goes_to_another_after_a_while(redis_connection: Redis) -> None:
    publish(RewardStream(redis_connection), "a")
    assert names(RewardStream(redis_connection), "first") == ["a"]
    assert names(RewardStream(redis_connection), "second") == []
    assert names(RewardStream(redis_connection, claim_after_s=0), "second") == ["a"]


def test_a_dead_trainers_records_are_found_behind_many_of_our_own(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection, claim_after_s=0)
    publish(stream, *(f"own-{number}" for number in range(60)))
    assert len(names(stream, "second", count=60)) == 60
    publish(stream, "lost")
    assert names(RewardStream(redis_connection), "first") == ["lost"]
    found = [name for _ in range(30) for name in names(stream, "second", count=3)]
    assert found == ["lost"]


def test_a_record_of_another_version_is_dropped_and_the_rest_goes_on(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection)
    redis_connection.xadd(STREAM, {"record": '{"record_id": "old"}'})
    redis_connection.xadd(STREAM, {"other": "x"})
    publish(stream, "a")
    assert names(stream) == ["a"]
    assert stream.length() == 1
    assert redis_connection.xpending(STREAM, GROUP)["pending"] == 1


def test_a_record_that_was_trimmed_away_is_not_waited_for(redis_connection: Redis) -> None:
    before = RewardStream(redis_connection)
    publish(before, "a", "b")
    names(before)
    redis_connection.xtrim(STREAM, maxlen=1, approximate=False)
    assert names(RewardStream(redis_connection)) == ["b"]
    assert redis_connection.xpending(STREAM, GROUP)["pending"] == 1


def test_the_stream_keeps_a_bounded_number_of_records(redis_connection: Redis) -> None:
    stream = RewardStream(redis_connection, max_records=100)
    publish(stream, *(f"r{number}" for number in range(400)))
    assert 100 <= stream.length() < 300


def test_a_read_of_nothing_does_not_block_without_leave(redis_connection: Redis) -> None:
    assert RewardStream(redis_connection).read("trainer", 1, block_ms=0) == []
