"""The learner on a tiny policy. In the bandit a program is one token and `<eos>`, and one token is rewarded."""

import copy
import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.learner import Learner, Stopped
from services.trainer.policy_model import PolicyNetworks, ValueHead, divergences
from sparsesmith.reward import Standard, improvement
from sparsesmith_proto.kernel import EstimatedTiming, Passed
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import HIDDEN, make_policy
from tests.trainer.records import MISMATCH, PASSED, make_batch, make_record, make_sampled

pytestmark = pytest.mark.usefixtures("one_thread")

ARMS = (20, 21, 22, 23)
REWARDED = 22
EOS = 0


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost a tiny policy more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_networks(seed: int = 0) -> PolicyNetworks:
    """Their published weights are their own: nothing is left to round."""
    policy = make_policy(seed)
    with torch.no_grad():
        for parameter in policy.encoder.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    torch.manual_seed(seed)
    return PolicyNetworks(policy.model, policy.encoder, ValueHead(HIDDEN))


def make_learner(networks: PolicyNetworks | None = None, **changes: Any) -> Learner:
    options = {
        "algorithm": "ppo",
        "matrix_rate": 1e-2,
        "other_rate": 3e-3,
        "value_rate": 1e-2,
        "program_kl_limit": 1.0,
        "kl_coefficient": 0.0,
        "critic_gate": 0.0,
    }
    return Learner(networks or make_networks(), LearnerOptions(**{**options, **changes}))


def arms(learner: Learner, version: int = 0, arms: tuple[int, ...] = ARMS) -> list[RewardRecord]:
    """Each arm pulled a few times, with the log-probabilities that the policy has for it now."""
    pulled = [arm for arm in arms for _ in range(2)]
    logprobs_BT = learner.logprobs(make_batch(*(pull(arm, version=version) for arm in pulled), version=version))
    return [
        pull(arm, f"{version}:{number}", version, tuple(logprobs[-2:].tolist()))
        for number, (arm, logprobs) in enumerate(zip(pulled, logprobs_BT, strict=True))
    ]


def pull(
    arm: int, name: str = "r", version: int = 0, logprobs: tuple[float, ...] = (-1.0, -1.0), **changes: Any
) -> RewardRecord:
    origin = make_sampled(token_ids=(arm, EOS), logprobs=logprobs, first_version=version, **changes)
    return make_record(name, reward=1.0 if arm == REWARDED else -0.4, origin=origin)


def logprob_of(learner: Learner, arm: int) -> float:
    return float(learner.logprobs(make_batch(pull(arm)))[0, -2])


@torch.no_grad()
def words_of(learner: Learner, batch: TrainingBatch) -> torch.Tensor:
    """Log-probabilities of all words at the sampled tokens."""
    hidden = learner.networks.hidden_states(batch.prompts, batch.text)
    return learner.networks.distributions(hidden, batch.text, batch.temperature_B)


def updated(learner: Learner, times: int, **changes: Any) -> list[dict[str, float]]:
    return [learner.update(make_batch(*arms(learner, version, **changes), version=version)) for version in range(times)]


def test_the_rewarded_program_becomes_likely_and_the_others_do_not() -> None:
    learner = make_learner()
    before = {arm: logprob_of(learner, arm) for arm in ARMS}
    history = updated(learner, 15)
    after = {arm: logprob_of(learner, arm) for arm in ARMS}
    assert after[REWARDED] > before[REWARDED] + 1.5
    assert after[REWARDED] > max(after[arm] for arm in ARMS if arm != REWARDED) + 2
    assert all(math.isfinite(value) for metrics in history for value in metrics.values())


def test_with_equal_rewards_the_policy_stays_where_it_is() -> None:
    learner = make_learner()
    before = logprob_of(learner, REWARDED)
    updated(learner, 2, arms=(REWARDED,))
    assert logprob_of(learner, REWARDED) == before


def test_the_critic_learns_the_rewards() -> None:
    learner = make_learner(matrix_rate=0.0, other_rate=0.0, epochs=8, value_clip=10.0, value_rate=3e-3)
    history = updated(learner, 8)
    assert history[0]["explained_variance"] == pytest.approx(0, abs=0.05)
    assert history[-1]["explained_variance"] > 0.3
    batch = make_batch(*(pull(arm, str(arm)) for arm in ARMS))
    with torch.no_grad():
        values_BT = learner.networks.values(
            learner.networks.hidden_states(batch.prompts, batch.text), batch.prompts, batch.text
        )
    assert values_BT[:, -1].tolist() == pytest.approx(batch.reward_B.tolist(), abs=0.25)


def test_the_critic_does_not_move_the_policy() -> None:
    learner = make_learner(matrix_rate=0.0, other_rate=0.0)
    batch = make_batch(*arms(learner))
    before = learner.logprobs(batch)
    learner.update(batch)
    assert torch.equal(learner.logprobs(batch), before)


def test_kl_pulls_a_policy_that_went_astray_back_to_the_reference() -> None:
    learner = make_learner(kl_coefficient=200.0, program_kl_limit=20.0, matrix_rate=1e-3, other_rate=1e-3)
    batch = make_batch(*arms(learner))
    reference_NV = words_of(learner, batch)
    with torch.no_grad():
        for parameter in learner.networks.policy_parameters():
            parameter.mul_(1.03)
    astray = float(divergences(words_of(learner, batch), reference_NV).sum())
    history = updated(learner, 12)
    assert history[-1]["kl_reference"] < 0.3 * history[0]["kl_reference"]
    assert float(divergences(words_of(learner, batch), reference_NV).sum()) < 0.3 * astray


def test_a_kl_coefficient_keeps_the_policy_nearer_to_the_reference() -> None:
    free, held = make_learner(), make_learner(kl_coefficient=2.0)
    assert updated(held, 8)[-1]["kl_reference"] < 0.5 * updated(free, 8)[-1]["kl_reference"]


def test_the_update_ends_early_once_the_policy_has_moved_far() -> None:
    learner = make_learner(epochs=20, program_kl_limit=1e-3)
    metrics = learner.update(make_batch(*arms(learner)))
    assert metrics["stopped_early"] == 1
    assert 1 <= metrics["steps"] < 20


def test_an_update_stays_within_its_trust_region_however_large_its_steps() -> None:
    learner = make_learner(matrix_rate=0.05, other_rate=0.01, program_kl_limit=0.2)
    batch = make_batch(*arms(learner))
    before_NV = words_of(learner, batch)
    metrics = learner.update(batch)
    assert metrics["stopped_early"] == 1
    assert 0 < metrics["kept_share"] < 1
    assert 0 < metrics["program_kl"] <= 0.2
    moved = divergences(before_NV, words_of(learner, batch)).sum() / len(batch)
    assert float(moved) == pytest.approx(metrics["program_kl"], rel=1e-3)


def test_an_update_that_leads_nowhere_finite_is_taken_back_whole() -> None:
    learner = make_learner(matrix_rate=1e30, other_rate=1e30)
    batch = make_batch(*arms(learner))
    before = learner.logprobs(batch)
    metrics = learner.update(batch)
    assert (metrics["kept_share"], metrics["program_kl"]) == (0, 0)
    assert torch.equal(learner.logprobs(batch), before)


def test_a_smaller_step_scale_moves_the_policy_less() -> None:
    moved = []
    for step_scale in (1.0, 0.25):
        learner = make_learner(matrix_rate=1e-3, other_rate=3e-4)
        moved.append(learner.update(make_batch(*arms(learner)), step_scale=step_scale)["program_kl"])
    assert 0 < moved[1] < 0.3 * moved[0]


def test_a_long_update_tells_of_its_progress(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.trainer.online.learner.PROGRESS_S", 0.0)
    learner = make_learner(minibatch_records=4)
    with caplog.at_level(logging.INFO):
        learner.update(make_batch(*arms(learner)))
    assert "minibatch 1 of at most 4" in caplog.text


def test_the_distribution_is_that_of_the_sampling_temperature() -> None:
    learner = make_learner()
    cold, warm = pull(REWARDED, "a", temperature=0.5), pull(REWARDED, "b", temperature=2.0)
    batch = make_batch(cold, warm)
    logprobs_BT = learner.logprobs(batch)
    with torch.no_grad():
        hidden_BTH = learner.networks.hidden_states(batch.prompts, batch.text)
        logits = learner.networks.output_layer(hidden_BTH[:, -2])
    for row, temperature in enumerate((0.5, 2.0)):
        expected = torch.log_softmax(logits[row] / temperature, -1)[REWARDED]
        assert float(logprobs_BT[row, -2]) == pytest.approx(float(expected), abs=1e-4)


def test_micro_batches_change_memory_and_not_the_update() -> None:
    networks = [make_networks(), make_networks()]
    whole = make_learner(networks[0], micro_batch_tokens=100_000, minibatch_records=4)
    pieces = make_learner(networks[1], micro_batch_tokens=64, minibatch_records=4)
    records = [
        make_record(str(n), reward=n / 8, origin=make_sampled(group=f"g{n % 2}", token_ids=(20 + n,) * (2 + 5 * n)))
        for n in range(8)
    ]
    metrics = [learner.update(make_batch(*records)) for learner in (whole, pieces)]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-3, abs=1e-5)
    batch = make_batch(*records)
    torch.testing.assert_close(pieces.logprobs(batch), whole.logprobs(batch), rtol=1e-3, atol=2e-3)


def test_a_token_from_an_older_policy_weighs_at_most_the_cap() -> None:
    learner = make_learner(importance_cap=2.0)
    unlikely = (-30.0, -30.0)
    batch = make_batch(*(pull(arm, str(arm), 0, unlikely) for arm in ARMS), version=1)
    metrics = learner.update(batch)
    assert (metrics["importance_mean"], metrics["importance_max"]) == (2.0, 2.0)
    assert metrics["mean_staleness"] == 1


def test_own_logprobs_that_differ_from_the_generators_are_reported_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = make_learner()
    assert learner.update(make_batch(*arms(learner)))["logprob_gap"] == pytest.approx(0, abs=1e-4)
    assert not caplog.records
    own = arms(learner)
    with caplog.at_level(logging.WARNING):
        shifted = [pull(REWARDED, "x", 0, tuple(logprob - 0.5 for logprob in sampled_logprobs(own[4])))]
        assert learner.update(make_batch(*shifted))["logprob_gap"] == pytest.approx(0.5, abs=0.02)
    assert "off ours" in caplog.text


def sampled_logprobs(record: RewardRecord) -> tuple[float, ...]:
    return tuple(make_batch(record).behaviour_BT[0, -2:].tolist())


def test_records_of_other_versions_are_not_part_of_the_logprob_check() -> None:
    assert "logprob_gap" not in make_learner().update(make_batch(pull(REWARDED), pull(20, "b"), version=2))


def test_the_policy_stands_still_until_its_critic_holds_and_the_critic_learns() -> None:
    learner = make_learner(critic_gate=0.5, critic_warmup=100, epochs=8, value_clip=10.0, value_rate=1e-2)
    before = logprob_of(learner, REWARDED)
    history: list[dict[str, float]] = []
    while not history or not history[-1]["policy_moved"]:
        assert logprob_of(learner, REWARDED) == before
        assert len(history) < 100, history[-1]
        history += updated(learner, 1)
    assert [metrics["critic_holds"] for metrics in history] == [0.0] * (len(history) - 1) + [1.0]
    assert history[0]["explained_variance_10"] < 0.5 <= history[-1]["explained_variance_10"]
    assert all(metrics["value_loss"] > 0 and metrics["steps"] > 0 for metrics in history)
    assert logprob_of(learner, REWARDED) > before


def test_a_policy_that_waited_long_enough_is_moved_by_its_groups_alone() -> None:
    learner = make_learner(critic_gate=1.0, critic_warmup=2, value_rate=0.0)
    history = updated(learner, 3)
    assert [metrics["policy_moved"] for metrics in history] == [0, 0, 1]
    assert history[-1]["critic_holds"] == 0
    alone = make_learner(critic_gate=0.0, group_share=1.0)
    assert logprob_of(learner, REWARDED) > logprob_of(alone, REWARDED)


def test_how_long_the_policy_waited_is_part_of_the_state() -> None:
    learner = make_learner(critic_gate=1.0, critic_warmup=2)
    updated(learner, 1)
    restored = make_learner(critic_gate=1.0, critic_warmup=2)
    restored.load_state_dict(copy.deepcopy(learner.state_dict()))
    assert [metrics["policy_moved"] for metrics in updated(restored, 2)] == [0, 1]


def test_a_state_from_before_critics_had_a_record_begins_one() -> None:
    learner = make_learner()
    updated(learner, 1)
    state = learner.state_dict()
    del state["critic_record"]
    restored = make_learner(critic_gate=1.0, critic_warmup=1)
    restored.load_state_dict(copy.deepcopy(state))
    assert [metrics["policy_moved"] for metrics in updated(restored, 2)] == [0, 1]


def test_with_equal_rewards_in_each_group_the_critic_alone_learns() -> None:
    learner = make_learner()
    records = [
        make_record(f"{group}:{number}", reward=float(group), origin=make_sampled(group=f"g{group}"))
        for group in range(2)
        for number in range(4)
    ]
    batch = make_batch(*records)
    before = learner.logprobs(batch)
    metrics = learner.update(batch)
    assert torch.equal(learner.logprobs(batch), before)
    assert metrics["policy_moved"] == 0 and metrics["steps"] > 0
    assert learner.update(batch)["value_loss"] < metrics["value_loss"]


def test_the_share_of_the_best_falls_with_the_updates_and_is_part_of_the_state() -> None:
    def moved(learner: Learner) -> list[float]:
        batch = make_batch(*arms(learner))
        learner.update(batch)
        return [float(each) for each in learner.logprobs(batch)[:, -2]]

    fading = make_learner(best_share=1.0, best_updates=1)
    moved(fading)
    restored, mean = make_learner(best_share=1.0, best_updates=1), make_learner()
    for each in (restored, mean):
        each.load_state_dict(copy.deepcopy(fading.state_dict()))
    assert moved(fading) == moved(restored) == moved(mean)
    first = [moved(make_learner(best_share=share)) for share in (0.0, 1.0)]
    assert first[0] != first[1]


@pytest.mark.parametrize("algorithm", ["ppo", "rloo"])
def test_a_speedup_of_a_hundred_moves_no_weight_further_than_one_of_two(algorithm: str) -> None:
    twice, hundredfold, less = (weights_after(speedup, algorithm) for speedup in (2.0, 100.0, 1.5))
    assert all(torch.equal(twice[name], hundredfold[name]) for name in twice)
    assert not all(torch.equal(twice[name], less[name]) for name in twice)


def weights_after(speedup: float, algorithm: str) -> dict[str, torch.Tensor]:
    """Of an update in which one program is so much faster than what there was, one slower, and two are wrong."""
    learner = make_learner(algorithm=algorithm, matrix_rate=1e-3, other_rate=1e-3)
    outcomes = {REWARDED: with_time(10 / speedup), 20: with_time(12.0)}
    records = [
        make_record(
            f"{arm}:{number}",
            reward=improvement(outcomes.get(arm, MISMATCH), Standard(10.0, 10.0, 1000)),
            origin=make_sampled(token_ids=(arm, EOS)),
        )
        for arm in ARMS
        for number in range(2)
    ]
    learner.update(make_batch(*records))
    return dict(learner.networks.state_dict())


def with_time(median_us: float) -> Passed:
    return PASSED.model_copy(update={"timing": EstimatedTiming(median_us=median_us, traffic_model="test")})


def test_an_update_can_be_abandoned_between_micro_batches() -> None:
    learner = make_learner(micro_batch_tokens=64)
    answers = iter([False] * 10 + [True])
    with pytest.raises(Stopped):
        learner.update(make_batch(*arms(learner)), lambda: next(answers))


def test_gradients_that_are_not_finite_leave_the_weights_alone(caplog: pytest.LogCaptureFixture) -> None:
    learner = make_learner()
    batch: TrainingBatch = make_batch(*arms(learner))
    before = learner.logprobs(batch)
    batch.reward_B[0] = math.nan
    metrics = learner.update(batch)
    assert metrics["steps"] == 0 and metrics["skipped_steps"] > 0
    assert torch.equal(learner.logprobs(batch), before)


def test_a_restored_learner_goes_on_as_the_saved_one_would_have() -> None:
    saved = make_learner(make_networks())
    saved.update(make_batch(*arms(saved)))
    restored = make_learner(make_networks())
    restored.load_state_dict(copy.deepcopy(saved.state_dict()))
    batch = make_batch(*arms(saved))
    assert restored.update(batch) == pytest.approx(saved.update(batch), rel=1e-5, abs=1e-7)
    assert torch.equal(restored.logprobs(batch), saved.logprobs(batch))


def test_networks_without_a_critic_are_refused() -> None:
    policy = make_policy()
    with pytest.raises(ValueError, match="value head"):
        Learner(PolicyNetworks(policy.model, policy.encoder), LearnerOptions("ppo"))


def test_without_a_critic_the_rewarded_program_becomes_likely_too() -> None:
    learner = make_learner(algorithm="rloo")
    before = logprob_of(learner, REWARDED)
    history = updated(learner, 15)
    assert learner.networks.value_head is None
    assert logprob_of(learner, REWARDED) > before + 1.5
    assert history[-1]["value_loss"] == history[-1]["explained_variance"] == 0
    assert max(metrics["program_kl"] for metrics in history) <= 1.0


def test_micro_batches_change_nothing_in_an_average_over_programs() -> None:
    whole, parts = make_learner(algorithm="rloo"), make_learner(algorithm="rloo", micro_batch_tokens=64)
    batch = make_batch(*arms(whole))
    assert parts.update(batch) == pytest.approx(whole.update(batch), rel=1e-4, abs=1e-5)


def test_a_state_of_an_algorithm_with_a_critic_is_gone_on_from_without_one_and_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_critic = make_learner()
    with_critic.update(make_batch(*arms(with_critic)))
    without = make_learner(algorithm="rloo")
    without.load_state_dict(copy.deepcopy(with_critic.state_dict()))
    batch = make_batch(*arms(without))
    assert torch.equal(without.logprobs(batch), with_critic.logprobs(batch))
    again = make_learner()
    with caplog.at_level(logging.WARNING):
        again.load_state_dict(copy.deepcopy(without.state_dict()))
    assert torch.equal(again.logprobs(batch), with_critic.logprobs(batch))
    assert "without this critic" in caplog.text
    assert math.isfinite(again.update(batch)["value_loss"])
