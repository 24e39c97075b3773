"""The story on a real Valkey and a tiny policy: what is learned from, what is dropped, what a kill leaves behind."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from services.trainer.online.checkpoints import CheckpointFolder, digest_of_records
from services.trainer.online.learner import MOST_TOKEN_GAP
from services.trainer.online.publishing import Edition
from services.trainer.opened_policy import open_policy
from services.trainer.service import open_learner, open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.training import Workshop, resume, train
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import NO_FATE, RewardStream
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.policy import PolicyAnnouncement
from tests.generator.tiny_policy import make_policy, reference_logprobs, write_policy
from tests.trainer.generators import generator
from tests.trainer.records import PATTERN, make_batch, make_record, make_sampled

COUNT = 6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def agreeable(redis_url: str) -> Iterator[None]:
    """A generator that lets every version serve."""
    with generator(redis_url):
        yield


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


def publish(connection: Redis, count: int = COUNT, name: str = "job", **changes: Any) -> None:
    PatternStore(connection).put(PATTERN)
    for number in range(count):
        origin = make_sampled(token_ids=(20 + number, 30, 0), **changes)
        RewardStream(connection).publish(make_record(f"{name}:{number}", reward=number / count, origin=origin))


def stream_is_empty(connection: Redis) -> Callable[[], bool]:
    return lambda: RewardStream(connection).length() == 0


def entries(settings: TrainerSettings) -> list[dict[str, Any]]:
    path = settings.state_dir / "updates.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def announced(connection: Redis) -> PolicyAnnouncement:
    latest = PolicyChannel(connection).latest()
    assert latest is not None
    return latest


def test_versions_rise_with_each_update_and_old_files_go(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    for version in range(6):
        publish(redis_connection, name=f"job-{version}", first_version=version)
        assert train(workshop, lambda: False, max_updates=1) == 1
    assert announced(redis_connection).version == 6
    assert [entry["version"] for entry in entries(settings)] == [1, 2, 3, 4, 5, 6]
    left = sorted(path.name for path in settings.exchange_dir.iterdir())
    assert left == [f"policy-{version}.safetensors" for version in (3, 4, 5, 6)]
    assert RewardStream(redis_connection).length() == 0


def test_while_the_policy_waits_for_its_critic_no_version_is_made_and_nothing_is_learned_twice(
    settings: TrainerSettings, redis_connection: Redis
) -> None:
    waiting = settings.model_copy(update={"algorithm": "ppo", "critic_gate": 1.0, "critic_warmup": 3})
    for number in range(4):
        publish(redis_connection, name=f"job-{number}")
        assert train(open_workshop(waiting, redis_connection), lambda: False, max_updates=1) == 1
        assert RewardStream(redis_connection).length() == 0
        assert (PolicyChannel(redis_connection).latest() is None) == (number < 3)
    assert [(entry["version"], entry["step"]) for entry in entries(settings)] == [(0, 1), (0, 2), (0, 3), (1, 4)]
    assert (announced(redis_connection).version, announced(redis_connection).step) == (1, 4)


def test_a_small_batch_waits_for_its_time_and_a_smaller_one_for_more_records(
    workshop: Workshop, redis_connection: Redis
) -> None:
    publish(redis_connection, count=1)
    calls = iter(range(5))
    assert train(workshop, lambda: next(calls) == 4) == 0
    assert RewardStream(redis_connection).length() == 1
    publish(redis_connection, count=2, name="more")
    assert train(workshop, lambda: False, max_updates=1) == 1
    assert announced(redis_connection).metrics["records"] == 3


def test_records_that_are_too_old_are_dropped_acknowledged_and_counted(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    other_weights = PolicyAnnouncement(
        version=5, weights="policy-5.safetensors", sha256="0" * 64, step=9, metrics={}, created_at="then"
    )
    PolicyChannel(redis_connection).announce(other_weights)
    publish(redis_connection, count=3, name="old", first_version=1)
    publish(redis_connection, count=3, name="new", first_version=2)
    assert train(workshop, lambda: False, max_updates=1) == 1
    (entry,) = entries(settings)
    assert (entry["version"], entry["records"], entry["skipped"]) == (7, 3, {"stale": 3})
    assert entry["mean_staleness"] == 4
    assert RewardStream(redis_connection).length() == 0


def test_a_record_without_its_pattern_holds_nothing_up(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    lost = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
    RewardStream(redis_connection).publish(make_record("lost:1", workload=lost))
    publish(redis_connection)
    assert train(workshop, lambda: False, max_updates=1) == 1
    assert entries(settings)[0]["skipped"] == {"pattern_gone": 1}


def test_an_abandoned_update_leaves_no_trace_and_its_records_come_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    asked = iter(range(1000))
    assert train(workshop, lambda: next(asked) >= 4) == 0
    assert PolicyChannel(redis_connection).latest() is None
    assert RewardStream(redis_connection).length() == COUNT
    again = open_workshop(settings, redis_connection)
    assert train(again, lambda: False, max_updates=1) == 1
    assert entries(settings)[0]["records"] == COUNT


def killed(settings: TrainerSettings, moment: str) -> None:
    """Runs a trainer that is killed at its first update, at this moment."""
    fields = settings.model_dump(mode="json", exclude={"redis_url"}, exclude_none=True)
    environment = {f"SPARSESMITH_TRAINER_{name.upper()}": str(value) for name, value in fields.items()}
    environment |= {"SPARSESMITH_REDIS_URL": settings.redis_url, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.trainer.dying_trainer", moment]
    done = subprocess.run(command, env={**os.environ, **environment}, timeout=180, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["announce", "acknowledge"])
def test_a_kill_after_the_checkpoint_does_not_train_twice(
    moment: str, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    killed(settings, moment)
    assert RewardStream(redis_connection).length() == COUNT
    workshop = open_workshop(settings, redis_connection)
    assert train(workshop, stream_is_empty(redis_connection)) == 0
    latest = announced(redis_connection)
    assert (latest.version, latest.step) == (1, 1)
    assert latest.metrics["records"] == COUNT
    assert (settings.exchange_dir / latest.weights).is_file()
    publish(redis_connection, name="next", first_version=1)
    assert train(workshop, lambda: False, max_updates=1) == 1
    told = entries(settings)
    assert [(entry["version"], entry["step"]) for entry in told] == [(1, 1), (2, 2)], (
        "the killed update is told of, too"
    )
    learned = [[f"{name}:{number}" for number in range(COUNT)] for name in ("job", "next")]
    assert [entry["records_sha256"] for entry in told] == [digest_of_records(each) for each in learned]
    fates = RewardStream(redis_connection).fates()
    assert fates == dict.fromkeys(learned[0], "already_used") | dict.fromkeys(learned[1], NO_FATE)


def test_a_line_of_the_journal_that_a_kill_tore_is_written_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    train(workshop, lambda: False, max_updates=1)
    (whole,) = entries(settings)
    path = settings.state_dir / "updates.jsonl"
    path.write_text(path.read_text()[:40])
    resume(open_workshop(settings, redis_connection))
    assert entries(settings) == [whole | {"seconds": 0.0}]


def test_a_restart_goes_on_with_the_weights_and_optimizers_of_the_checkpoint(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    train(workshop, lambda: False, max_updates=1)
    again = open_workshop(settings, redis_connection)
    resume(again)
    batch = make_batch(make_record(origin=make_sampled(first_version=1)), version=1)
    assert torch.equal(again.learner.logprobs(batch), workshop.learner.logprobs(batch))
    assert not torch.equal(
        again.learner.logprobs(batch), open_workshop(settings, redis_connection).learner.logprobs(batch)
    )


def test_an_announced_file_that_is_lost_or_damaged_is_written_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    train(workshop, lambda: False, max_updates=1)
    path = settings.exchange_dir / announced(redis_connection).weights
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    resume(open_workshop(settings, redis_connection))
    assert path.read_bytes() == whole
    assert announced(redis_connection).version == 1


def test_a_redis_that_lost_the_announcement_is_told_again(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    train(workshop, lambda: False, max_updates=1)
    before = announced(redis_connection)
    redis_connection.flushall()
    resume(open_workshop(settings, redis_connection))
    assert announced(redis_connection) == before


def test_weights_announced_from_a_lost_checkpoint_are_replaced_under_a_new_version(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    for version in (0, 1):
        publish(redis_connection, name=f"job-{version}", first_version=version)
        train(workshop, lambda: False, max_updates=1)
    (newest,) = (settings.state_dir / "checkpoints").glob("checkpoint-00000002-*.pt")
    newest.write_bytes(b"torn")
    again = open_workshop(settings, redis_connection)
    assert resume(again).version == 3
    assert (announced(redis_connection).version, announced(redis_connection).step) == (3, 1)
    found = CheckpointFolder(settings.state_dir / "checkpoints", 2).newest(again.policy)
    assert found is not None and found.version == 3


def test_the_published_file_is_the_policy_that_the_learner_has(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    train(workshop, lambda: False, max_updates=1)
    sampled = make_sampled(token_ids=(40, 41, 42, 50, 0))
    batch = make_batch(make_record(origin=sampled))
    exact = workshop.learner.logprobs(batch)[0, -5:]
    assert float((served_logprobs(settings, redis_connection) - exact).abs().mean()) < 5 * MOST_TOKEN_GAP
    with torch.no_grad():  # Without bfloat16's rounding in between they are the same.
        for parameter in workshop.learner.networks.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    workshop.publisher.publish(workshop.learner.networks, Edition(2, 2, {}, "now"))
    rounded = workshop.learner.logprobs(batch)[0, -5:]
    torch.testing.assert_close(served_logprobs(settings, redis_connection), rounded, rtol=0, atol=1e-4)


def served_logprobs(settings: TrainerSettings, connection: Redis) -> torch.Tensor:
    """What a generator would compute from the newest announced file: its embedder, and Hugging Face's model."""
    path = settings.exchange_dir / announced(connection).weights
    embedder = load_embedder(settings.policy_dir).with_weights(path)
    model = Qwen3ForCausalLM.from_pretrained(settings.policy_dir, dtype=torch.float32)
    weights = {name: value for name, value in load_file(path).items() if not name.startswith("encoder.")}
    missing, unexpected = model.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
    assert (set(missing) - {"lm_head.weight"}, list(unexpected)) == (set(), [])
    record = make_record(origin=make_sampled(token_ids=(40, 41, 42, 50, 0)))
    prompt = prompt_inputs(PATTERN, record.workload, make_sampled().prompt)
    served = Policy(model, embedder.encoder, make_policy().description)
    return reference_logprobs(served, embedder.embed([prompt])[0], (40, 41, 42, 50, 0))


@contextmanager
def full_disk() -> Iterator[None]:
    """Files end at 4 KiB, as they do where a quota is used up: writing more is an OSError."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_loses_no_record_and_publishes_nothing(
    workshop: Workshop, settings: TrainerSettings, redis_connection: Redis
) -> None:
    publish(redis_connection)
    with full_disk(), pytest.raises(OSError):
        train(workshop, lambda: False, max_updates=1)
    assert PolicyChannel(redis_connection).latest() is None
    assert RewardStream(redis_connection).length() == COUNT
    assert entries(settings) == []
    again = open_workshop(settings, redis_connection)
    assert train(again, lambda: False, max_updates=1) == 1
    assert (announced(redis_connection).version, entries(settings)[0]["records"]) == (1, COUNT)
    assert [path.suffix for path in (settings.state_dir / "checkpoints").iterdir()] == [".pt"]


@pytest.mark.parametrize("changes", [{"taught_critic": True}, {"value_dir": Path("a-value-model")}])
def test_a_critic_that_the_algorithm_has_no_use_for_is_refused(
    changes: dict[str, Any], settings: TrainerSettings
) -> None:
    opened = open_policy(settings, "cpu")
    with pytest.raises(InvalidOption, match="the algorithm rloo has no critic") as caught:
        open_learner(settings.model_copy(update=changes), opened, "cpu")
    ((field, value),) = changes.items()
    assert (caught.value.field, caught.value.value) == (field, str(value))
    assert open_learner(settings.model_copy(update={**changes, "algorithm": "ppo"}), opened, "cpu").networks.value_head


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_records": 0}, ["batch_records", "greater than or equal to 1", "input_value=0"]),
        ({"imitation_share": 0.9}, ["imitation_share", "less than or equal to 0.5", "input_value=0.9"]),
        ({"min_records": 64, "batch_records": 8}, ["min_records", "64", "batch_records, 8"]),
        ({"gae_lambda": 1.5}, ["gae_lambda", "less than or equal to 1", "input_value=1.5"]),
        ({"reward": "speed"}, ["reward", "'milestone'", "input_value='speed'"]),
    ],
)
def test_a_setting_out_of_range_is_named_with_its_value_and_limit(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainerSettings(**changes)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("content", [b"no digest\n", b"\xff\xfe", None])
def test_a_file_of_held_out_matrices_that_cannot_be_read_is_named(
    content: bytes | None, settings: TrainerSettings, redis_connection: Redis, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "held").write_bytes(content)
    with pytest.raises(InvalidOption, match="held_out_file") as caught:
        open_workshop(settings.model_copy(update={"held_out_file": tmp_path / "held"}), redis_connection)
    assert caught.value.field == "held_out_file"
