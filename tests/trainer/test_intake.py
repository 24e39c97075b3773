"""What becomes a batch, on a real stream: whole groups; what is never learned from, and where that is kept."""

from collections.abc import Callable
from typing import Any

import pytest

from services.trainer.online.batch import UsableRecord
from services.trainer.online.groups import Groups
from services.trainer.online.intake import Collected, IntakeOptions, RecordIntake
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.stream import DEAD_LETTERS, NO_FATE, STREAM, RewardStream
from sparsesmith_proto.kernel import FromFamily, Workload
from sparsesmith_proto.reward import RewardRecord
from tests.trainer.records import make_reader, make_record, make_sampled
from tests.trainer.test_batch import make_usable


def rounds(count: int) -> Callable[[], bool]:
    """Time to stop after so many looks at the stream."""
    left = iter(range(count))
    return lambda: next(left, None) is None


class Clock:
    """Seconds, as a test wants them."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def make_intake(connection: Redis, clock: Clock | None = None, **changes: Any) -> RecordIntake:
    options: dict[str, Any] = {"batch_records": 4, "min_records": 1, "max_wait_s": 20.0, **changes}
    return RecordIntake(RewardStream(connection), make_reader(), IntakeOptions(**options), clock or Clock())


def sample(name: str, group: str = "g", size: int | None = 4, **changes: Any) -> RewardRecord:
    return make_record(name, origin=make_sampled(group=group, group_size=size, **changes))


def publish(connection: Redis, *records: RewardRecord) -> None:
    for record in records:
        assert RewardStream(connection).publish(record)


def collected(intake: RecordIntake, looks: int = 4) -> Collected | None:
    return intake.collect(0, (), rounds(looks))


def test_a_batch_takes_whole_groups_and_leaves_the_others_for_the_next(redis_connection: Redis) -> None:
    slow = [sample(f"slow:{number}", "slow") for number in range(4)]
    fast = [sample(f"fast:{number}", "fast") for number in range(4)]
    publish(redis_connection, *slow[:3], *fast)
    intake = make_intake(redis_connection)
    first = collected(intake)
    assert first is not None and first.record_ids == [each.record_id for each in fast]
    intake.acknowledge(first)
    assert collected(intake) is None, "a group that is not whole is no batch"
    publish(redis_connection, slow[3])
    second = collected(intake)
    assert second is not None and second.record_ids == [each.record_id for each in slow]


def test_a_group_that_is_whole_is_not_cut_at_the_batch_size(redis_connection: Redis) -> None:
    publish(redis_connection, *(sample(f"{number}", size=6) for number in range(6)))
    found = collected(make_intake(redis_connection, batch_records=4))
    assert found is not None and len(found.records) == 6


def test_a_group_of_which_nothing_more_comes_is_taken_as_it_is(redis_connection: Redis) -> None:
    clock = Clock()
    intake = make_intake(redis_connection, clock)
    publish(redis_connection, sample("a"), sample("b"), *(sample(f"{number}", "whole") for number in range(4)))
    first = collected(intake)
    assert first is not None and len(first.records) == 4
    intake.acknowledge(first)
    clock.now += 19.9
    assert collected(intake) is None
    clock.now += 0.2
    publish(redis_connection, *(sample(f"next:{number}", "next") for number in range(4)))
    second = collected(intake)
    assert second is not None and second.record_ids == ["a", "b", "next:0", "next:1", "next:2", "next:3"]


def test_a_group_does_not_wait_for_a_sample_that_nobody_learns_from(redis_connection: Redis) -> None:
    bad = sample("bad", token_ids=(-1, 0))
    publish(redis_connection, *(sample(f"{number}") for number in range(3)), bad)
    found = collected(make_intake(redis_connection, batch_records=3))
    assert found is not None and found.record_ids == ["0", "1", "2"]
    assert found.skipped == {"unknown_token": 1}


def test_a_trainer_that_can_learn_from_nothing_says_so_and_why(
    redis_connection: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """As where all groups of a service leave out unlikely tokens; not where families are all that is graded."""
    intake = make_intake(redis_connection)

    def told() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        caplog.clear()
        return texts

    publish(
        redis_connection,
        *(make_record(f"f{number}", origin=FromFamily(family="csr_vector", parameters={})) for number in range(8)),
    )
    assert collected(intake) is None and told() == []
    publish(redis_connection, *(sample(f"w{number}", f"g{number}", min_p=0.1) for number in range(4)))
    assert collected(intake) is None
    assert told() == ["no record that came can be learned from; skipped: {'truncated': 4}"]
    publish(redis_connection, *(sample(f"v{number}", f"h{number}", min_p=0.1) for number in range(3)))
    assert collected(intake) is None and told() == [], "some are skipped now and then"
    publish(redis_connection, sample("u0", "k"), *(sample(f"u{number}", "k", min_p=0.1) for number in (1, 2)))
    publish(redis_connection, *(sample(f"t{number}", f"l{number}", min_p=0.1) for number in range(8)))
    assert collected(intake, 6) is None and told() == [], "a group waits for more"


def test_records_of_unknown_group_size_wait_for_nobody(redis_connection: Redis) -> None:
    publish(redis_connection, *(sample(f"{number}", size=None) for number in range(4)))
    found = collected(make_intake(redis_connection))
    assert found is not None and len(found.records) == 4


def test_after_a_restart_records_that_waited_for_their_group_still_do(redis_connection: Redis) -> None:
    publish(redis_connection, *(sample(f"{number}") for number in range(3)))
    assert collected(make_intake(redis_connection)) is None
    publish(redis_connection, sample("3"))
    found = collected(make_intake(redis_connection))
    assert found is not None and sorted(found.record_ids) == ["0", "1", "2", "3"]


def test_measured_and_estimated_samples_of_a_prompt_are_two_groups() -> None:
    groups, estimated = Groups(patience_s=10), sample("a", size=1)
    measured = estimated.model_copy(update={"device": estimated.device.model_copy(update={"kind": "cuda"})})
    for record in (estimated, measured):
        groups.add(record.record_id, make_usable(record), now=0)
    assert [len(each.records) for each in groups.ripe(now=0)] == [1, 1]


LOST = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
BAD: list[tuple[str, dict[str, Any]]] = [
    ("bad_logprob", {"origin": make_sampled(logprobs=(-1.0, 0.5, -1.0))}),
    ("no_reward", {"rewards": {"paper": 1.0}}),
    ("unknown_token", {"origin": make_sampled(token_ids=(10**6, 0))}),
    ("unknown_version", {"origin": make_sampled(first_version=7)}),
    ("other_encoder", {"origin": make_sampled({"encoder": "sinusoidal"})}),
    ("pattern_gone", {"workload": LOST}),
    ("too_long", {"origin": make_sampled(token_ids=(20,) * 512)}),
]


def malformed() -> list[bytes]:
    """What other programs might write: no JSON, numbers that are none, lengths that differ."""
    whole = make_record("bad").model_dump_json().encode()
    changed = [
        whole.replace(b'"milestone":1.0', b'"milestone":NaN'),
        whole.replace(b'"milestone":1.0', b'"milestone":"inf"'),
        whole.replace(b'"logprobs":[-1.0,', b'"logprobs":[NaN,'),
        whole.replace(b'"logprobs":[-1.0,', b'"logprobs":[-1.0,-1.0,'),
    ]
    assert whole not in changed
    return [b"{", *changed]


def test_every_kind_of_bad_record_is_counted_kept_as_a_dead_letter_and_stops_nothing(redis_connection: Redis) -> None:
    publish(redis_connection, *(make_record(f"bad:{number}", **changes) for number, (_, changes) in enumerate(BAD)))
    for content in malformed():
        redis_connection.xadd(STREAM, {b"record": content})
    redis_connection.xadd(STREAM, {b"other": b"field"})
    publish(redis_connection, sample("good", "other", size=1))
    found = collected(make_intake(redis_connection, batch_records=1), looks=20)
    assert found is not None and found.record_ids == ["good"]
    reasons = [reason for reason, _ in BAD] + ["malformed"] * 6
    assert dict(found.skipped) == {reason: reasons.count(reason) for reason in reasons}
    letters = RewardStream(redis_connection).dead_letters()
    assert sorted(reason for reason, _ in letters) == sorted(reasons)
    assert b"{" in [content for _, content in letters]
    assert RewardStream(redis_connection).length() == 1, "what was collected is acknowledged after the checkpoint"


@pytest.mark.parametrize("name", ["used", "family", "old"])
def test_what_is_left_out_lawfully_is_no_dead_letter(name: str, redis_connection: Redis) -> None:
    origin = FromFamily(family="csr_vector", parameters={}) if name == "family" else make_sampled()
    publish(redis_connection, make_record(name, origin=origin))
    version = 9 if name == "old" else 0
    assert make_intake(redis_connection).collect(version, ["used"], rounds(3)) is None
    assert RewardStream(redis_connection).length() == 0
    assert redis_connection.xlen(DEAD_LETTERS) == 0


def test_groups_of_older_versions_are_learned_from_first() -> None:
    groups = Groups(patience_s=10)
    for version in (2, 1, 3, 1):
        name = f"g{groups.num_records}"
        record = sample(name, name, size=1, first_version=version)
        usable = make_reader().read(record, 3)
        assert isinstance(usable, UsableRecord)
        groups.add(name, usable, now=0)
    assert [each.entry_ids for each in groups.ripe(now=0)] == [["g1"], ["g3"], ["g0"], ["g2"]]


def test_why_nobody_learned_from_a_record_is_noted_with_its_acknowledgement(redis_connection: Redis) -> None:
    old, bad, good = sample("old", first_version=0), sample("bad", token_ids=(-1, 0)), sample("good", "other", size=1)
    publish(redis_connection, old, bad, good)
    intake = make_intake(redis_connection, batch_records=1)
    found = intake.collect(0, {"old"}, rounds(4))
    assert found is not None and found.record_ids == ["good"]
    stream = RewardStream(redis_connection)
    assert stream.fates() == {"old": "already_used", "bad": "unknown_token", "good": NO_FATE}
    assert stream.waiting() == ["good"]
    assert not stream.publish(old), "it is known still that the record was published"
