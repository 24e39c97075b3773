"""What is imitated beside what is rewarded: which programs, from whom, how much of a step, and what a kill leaves."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from services.trainer.online.batch import UsableRecord, assemble_examples
from services.trainer.online.imitation import mixed, norm
from services.trainer.online.wins import MOST_WORKLOADS, Wins
from services.trainer.service import open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.tokenizer import decode_program
from services.trainer.training import resume, train
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.kernel import Candidate, EstimatedTiming, FromFamily, Mutated, Workload
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import make_policy, make_tokenizer, write_policy
from tests.trainer.generators import generator
from tests.trainer.records import MISMATCH, PASSED, PATTERN, make_batch, make_reader, make_record, make_sampled
from tests.trainer.test_learner import arms, logprob_of, make_learner, pull

FAMILY = FromFamily(family="csr_vector", parameters={})
MUTATED = Mutated(parent="c1", deed="hints: x ldcg", seed="s", generation=1, report="passed 2 us")


def measured(name: str, median_us: float, origin: Any = FAMILY, program: str = "text", **changes: Any) -> RewardRecord:
    outcome = PASSED.model_copy(update={"timing": EstimatedTiming(median_us=median_us, traffic_model="test")})
    candidate = Candidate(candidate_id=name, program=program, origin=origin)
    return make_record(name, **{"outcome": outcome, "candidate": candidate, **changes})


def example(record: RewardRecord) -> UsableRecord:
    found = make_reader(imitates=True).example(record)
    assert isinstance(found, UsableRecord), found
    return found


def test_of_each_workload_the_fastest_program_that_beats_the_library_is_kept_whoever_wrote_it() -> None:
    wins = Wins()
    assert not wins.offer(example(measured("slow", 2.0))), "as slow as the best routine"
    assert wins.offer(example(measured("first", 1.5)))
    assert not wins.offer(example(measured("second", 1.6)))
    assert wins.offer(example(measured("first", 1.5))), "an abandoned update's records come again"
    assert wins.offer(example(measured("third", 1.2, MUTATED)))
    assert wins.offer(example(measured("fourth", 1.1, make_sampled())))
    assert not wins.offer(example(make_record("failed", origin=make_sampled(), outcome=MISMATCH)))
    assert [each.record.record_id for each in wins.chosen(5, random.Random(0))] == ["fourth"]
    wide = Workload(pattern=PATTERN.digest, operation="spmm", element_type="float32", num_dense_cols=8)
    assert wins.offer(example(measured("other", 1.9, workload=wide)))
    assert len(wins) == 2 <= MOST_WORKLOADS


def test_a_program_is_imitated_as_it_was_proposed_in_the_policys_words() -> None:
    candidate = Candidate(candidate_id="c", program="int w = 4;", written="int w = WIDTH;", origin=FAMILY)
    found = example(measured("r", 1.0, candidate=candidate))
    assert decode_program(make_tokenizer(), found.sampled.token_ids) == "int w = WIDTH;"
    assert found.sampled.prompt.encoder == "structural"
    assert make_reader(imitates=True, max_text_tokens=4).example(measured("r", 1.0, program="x" * 40)) == "too_long"
    held_out = make_reader(imitates=True, held_out=frozenset({PATTERN.digest}))
    assert held_out.example(measured("r", 1.0)) == "held_out"


def test_imitation_is_its_share_of_a_step_however_long_its_gradient() -> None:
    rewarded, imitated = [torch.tensor([3.0, 0.0]), None], [torch.tensor([0.0, 400.0]), torch.tensor([300.0])]
    first, second = mixed(rewarded, imitated, 0.2)
    assert first is not None and second is not None
    torch.testing.assert_close(first, torch.tensor([2.4, 0.2 * 3 * 0.8]))
    torch.testing.assert_close(second, torch.tensor([0.2 * 3 * 0.6]))
    assert norm(imitated) == pytest.approx(500)
    nothing = mixed(rewarded, [None, None], 0.2)[0]
    assert nothing is not None and nothing.tolist() == pytest.approx([2.4, 0.0])


def test_an_imitated_program_becomes_likely_and_equal_rewards_move_nothing() -> None:
    examples = assemble_examples([example(pull(21))])
    gains = []
    for share in (0.0, 0.2):
        learner = make_learner(imitation_share=share)
        before = logprob_of(learner, 21)
        for _ in range(4):
            told = learner.update(make_batch(*arms(learner)), examples=examples if share else None)
        gains.append(logprob_of(learner, 21) - before)
    assert gains[1] > gains[0] + 0.2
    assert told["imitation"] > 0
    learner = make_learner(imitation_share=0.2)
    before = logprob_of(learner, 21)
    learner.update(make_batch(*arms(learner, arms=(20,))), examples=examples)
    assert logprob_of(learner, 21) == before


def test_foreign_programs_are_kept_over_a_restart_and_acknowledged_with_the_batch(
    tmp_path: Path, redis_connection: Redis, redis_url: str
) -> None:
    write_policy(tmp_path / "model", make_policy())
    settings = TrainerSettings(
        redis_url=redis_url,
        policy_dir=tmp_path / "model",
        exchange_dir=tmp_path / "exchange",
        state_dir=tmp_path / "state",
        device="cpu",
        batch_records=4,
        max_wait_s=0.1,
        min_records=4,
        max_text_tokens=512,
        critic_gate=0,
        imitation_share=0.2,
    )
    PatternStore(redis_connection).put(PATTERN)
    stream = RewardStream(redis_connection)
    stream.publish(measured("foreign", 1.0, program="//@ format csr"))
    stream.publish(measured("slower", 1.5, program="//@ format coo"))
    workshop = open_workshop(settings, redis_connection)
    asked = iter(range(4))
    with generator(redis_url):
        assert train(workshop, lambda: next(asked, None) is None) == 0
        assert stream.length() == 1, "what is kept waits for a checkpoint, the slower one is of no use"
        for number in range(4):
            origin = make_sampled(token_ids=(20 + number, 30, 0))
            stream.publish(make_record(f"job:{number}", reward=number / 4 + 0.1, origin=origin))
        again = open_workshop(settings, redis_connection)
        assert train(again, lambda: False, max_updates=1) == 1
    assert stream.length() == 0
    restarted = open_workshop(settings, redis_connection)
    resume(restarted)
    assert [each.record.record_id for each in restarted.intake.wins.chosen(4, random.Random(0))] == ["foreign"]
