"""What the trainer makes of a verdict, on a real Valkey and a tiny policy; the generator's end is the test's."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from services.trainer.online.checkpoints import CheckpointFolder
from services.trainer.online.vetting import SMALLEST_STEP, vetted
from services.trainer.online.vouching import WORST_GAP
from services.trainer.service import open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.training import Workshop, resume, train
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.policy import LogprobGap, PolicyAnnouncement, ProbeQuestion, ProbeSample
from tests.generator.tiny_policy import make_policy, write_policy
from tests.trainer.generators import generator, make_verdict
from tests.trainer.records import PATTERN, make_batch, make_record, make_sampled

COUNT = 6


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> TrainerSettings:
    write_policy(tmp_path / "model", make_policy())
    return TrainerSettings(
        redis_url=redis_url,
        policy_dir=tmp_path / "model",
        exchange_dir=tmp_path / "exchange",
        state_dir=tmp_path / "state",
        device="cpu",
        batch_records=COUNT,
        min_records=2,
        max_wait_s=0.1,
        max_text_tokens=512,
        critic_gate=0,
    )


@pytest.fixture
def workshop(settings: TrainerSettings, redis_connection: Redis) -> Workshop:
    return open_workshop(settings, redis_connection)


def publish(connection: Redis, name: str, **changes: Any) -> None:
    PatternStore(connection).put(PATTERN)
    for number in range(COUNT):
        origin = make_sampled(token_ids=(20 + number, 30, 0), **changes)
        RewardStream(connection).publish(make_record(f"{name}:{number}", reward=number / COUNT, origin=origin))


def logprobs(workshop: Workshop) -> torch.Tensor:
    return workshop.learner.logprobs(make_batch(make_record(origin=make_sampled(token_ids=(40, 41, 0)))))


def refuse_from(version: int) -> Callable[[PolicyAnnouncement], str | None]:
    return lambda announcement: "worse" if announcement.version >= version else None


def updated(workshop: Workshop, connection: Redis, count: int, first_version: int = 0) -> None:
    for number in range(count):
        publish(connection, f"job-{first_version}-{number}-{time.monotonic_ns()}", first_version=first_version)
        assert train(workshop, lambda: False, max_updates=1) == 1


def verdicts(settings: TrainerSettings) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (settings.state_dir / "verdicts.jsonl").read_text().splitlines()]


def journal(settings: TrainerSettings) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (settings.state_dir / "updates.jsonl").read_text().splitlines()]


def test_nothing_is_learned_from_while_a_version_is_under_probe(
    workshop: Workshop, redis_connection: Redis, redis_url: str
) -> None:
    updated(workshop, redis_connection, 1)
    publish(redis_connection, "next")
    end = time.monotonic() + 1.0
    assert train(workshop, lambda: time.monotonic() > end) == 0
    assert RewardStream(redis_connection).length() == COUNT
    with generator(redis_url):
        assert train(workshop, lambda: False, max_updates=1) == 1


def test_a_refused_version_is_forgotten_and_training_goes_on_from_the_last_good_one_with_smaller_steps(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    with generator(redis_url, refuse_from(2)):
        updated(workshop, redis_connection, 1)
        good = logprobs(workshop)
        updated(workshop, redis_connection, 1)
        assert not torch.equal(logprobs(workshop), good)
        publish(redis_connection, "third")
        stopping = iter([False] * 40 + [True] * 100)
        state = resume(workshop)
        assert state.version == 2
        found = vetted(workshop, state, lambda: next(stopping))
        assert found is not None
    state, turned_down = found
    assert (state.version, state.newest, state.step, turned_down) == (1, 2, 1, {2})
    assert state.step_scale == 0.5
    assert torch.equal(logprobs(workshop), good)
    assert PolicyChannel(redis_connection).standing().serving_version == 1


def test_the_next_version_after_a_refused_one_has_a_number_of_its_own_and_half_the_step(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    with generator(redis_url, lambda announcement: "worse" if announcement.version == 1 else None):
        updated(workshop, redis_connection, 3)
    assert [(entry["version"], entry["step_scale"]) for entry in journal(settings)] == [
        (1, 1.0),
        (2, 0.5),
        (3, pytest.approx(0.5 * 2**0.25, rel=1e-4)),
    ]
    assert [(each["version"], each["decision"]) for each in verdicts(settings)][:2] == [(1, "refused"), (2, "accepted")]


def test_steps_do_not_shrink_to_nothing(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    before = logprobs(workshop)
    with generator(redis_url, refuse_from(1)):
        updated(workshop, redis_connection, 7)
        publish(redis_connection, "last")
        state = resume(workshop)
        while state.version:
            found = vetted(workshop, state, lambda: False)
            assert found is not None
            state = found[0]
    assert state.step_scale == SMALLEST_STEP
    assert torch.equal(logprobs(workshop), before)


def test_a_trainer_that_is_killed_while_its_version_is_under_probe_waits_for_the_verdict_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    updated(workshop, redis_connection, 1)
    again = open_workshop(settings, redis_connection)
    publish(redis_connection, "next")
    with generator(redis_url, refuse_from(1)):
        train(again, lambda: RewardStream(redis_connection).length() == 0, max_updates=1)
    assert [entry["version"] for entry in journal(settings)] == [1, 2]
    assert journal(settings)[1]["step_scale"] == 0.5


def test_a_trainer_that_is_killed_after_a_refusal_does_not_announce_the_refused_weights_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    updated(workshop, redis_connection, 1)
    channel = PolicyChannel(redis_connection)
    newest = channel.latest()
    assert newest is not None
    channel.judge(make_verdict(newest, "worse"))
    for _ in range(2):  # The second restart comes after it had gone back.
        again = open_workshop(settings, redis_connection)
        asked = iter([False, False, True, True])
        assert train(again, lambda asked=asked: next(asked)) == 0  # type: ignore[misc]
        assert channel.latest() == newest
        assert torch.equal(logprobs(again), logprobs(open_workshop(settings, redis_connection)))


def test_without_its_checkpoint_the_version_in_service_is_taken_from_its_file(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    with generator(redis_url):
        updated(workshop, redis_connection, 2)
        assert train(workshop, lambda: PolicyChannel(redis_connection).standing().serving_version == 2) == 0
    for file in (settings.state_dir / "checkpoints").glob("checkpoint-00000001-*.pt"):
        file.unlink()
    PolicyChannel(redis_connection).roll_back(1, "rolled back by an operator", "now")
    again = open_workshop(settings, redis_connection)
    asked = iter([False, False, True, True])
    train(again, lambda: next(asked))
    found = CheckpointFolder(settings.state_dir / "checkpoints", 2).newest(again.policy)
    assert found is not None and (found.version, found.newest) == (1, 2)
    assert not torch.equal(logprobs(again), logprobs(open_workshop(settings, redis_connection)))


def test_records_of_a_version_that_was_turned_down_are_dropped_with_a_count_and_age_no_others(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis, redis_url: str
) -> None:
    with generator(redis_url):
        updated(workshop, redis_connection, 2)
        assert train(workshop, lambda: PolicyChannel(redis_connection).standing().serving_version == 2) == 0
        PolicyChannel(redis_connection).roll_back(1, "rolled back by an operator", "now")
        publish(redis_connection, "bad", first_version=2)
        publish(redis_connection, "good", first_version=1)
        assert train(workshop, lambda: False, max_updates=1) == 1
    assert journal(settings)[-1]["version"] == 3
    assert journal(settings)[-1]["skipped"] == {"turned_down": COUNT}


def test_the_trainer_vouches_for_the_shipped_version_and_the_published_one(
    workshop: Workshop, redis_connection: Redis, redis_url: str
) -> None:
    updated(workshop, redis_connection, 1)
    channel = PolicyChannel(connect(redis_url))
    stopping = threading.Event()
    waiting = threading.Thread(target=train, args=(workshop, stopping.is_set), daemon=True)
    waiting.start()
    shipped, published = (asked(channel, version) for version in (0, 1))
    with pytest.raises(TimeoutError):
        asked(channel, 7, within_s=1.0)
    stopping.set()
    waiting.join()
    assert (shipped.version, published.version) == (0, 1)
    assert shipped.per_token > 0.1, "the question's log-probabilities are made up"
    assert shipped.per_program != published.per_program
    assert shipped.num_tokens > 0


def asked(channel: PolicyChannel, version: int, within_s: float = 30.0) -> LogprobGap:
    workload = make_record().workload
    sample = ProbeSample(workload=workload, sampled=make_sampled(token_ids=(40, 41, 42, 0)))
    question = ProbeQuestion(probe_id=f"q{version}", version=version, samples=(sample,) * 3)
    channel.ask(question)
    end = time.monotonic() + within_s
    while (gap := channel.answered(question.probe_id)) is None:
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
    return gap


def test_an_engine_with_our_weights_has_no_gap_and_a_bent_one_has(workshop: Workshop) -> None:
    with torch.no_grad():
        for parameter in workshop.learner.networks.parameters():
            parameter.mul_(1.01)
            parameter.copy_(parameter.to(torch.bfloat16))
    batch = make_batch(make_record(origin=make_sampled(token_ids=(40, 41, 42, 0))))
    own = tuple(workshop.learner.logprobs(batch)[0, -4:].tolist())
    exact = make_batch(make_record(origin=make_sampled(token_ids=(40, 41, 42, 0), logprobs=own)))
    bent = make_batch(
        make_record(origin=make_sampled(token_ids=(40, 41, 42, 0), logprobs=tuple(each - 0.25 for each in own)))
    )
    none = workshop.learner.published_gap(exact, shipped=False)
    assert (none.per_token, none.per_program) == (pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-4))
    gap = workshop.learner.published_gap(bent, shipped=False)
    assert (gap.per_token, gap.per_program) == (pytest.approx(0.25, abs=1e-3), pytest.approx(1.0, abs=1e-3))
    assert gap.num_tokens == 4
    assert workshop.learner.published_gap(exact, shipped=True).per_token > 0


def test_a_gap_that_is_not_finite_is_told_as_the_worst(workshop: Workshop, redis_connection: Redis) -> None:
    PatternStore(redis_connection).put(PATTERN)
    with torch.no_grad():
        workshop.learner.networks.policy_parameters()[0].fill_(torch.nan)
    sample = ProbeSample(workload=make_record().workload, sampled=make_sampled())
    question = ProbeQuestion(probe_id="q", version=1, samples=(sample,))
    gap = workshop.vouching.answer(question, published=1)
    assert gap is not None and gap.per_program == WORST_GAP
