import math
from itertools import combinations

import pytest
import torch

from services.trainer.online.advantages import (
    MOST_SPREADS,
    REWARD_NOISE,
    critic_advantages,
    generalized_advantages,
    group_advantages,
    group_spreads,
    lambdas,
    leave_one_out,
    leave_one_out_best,
    mixed_advantages,
    monte_carlo_returns,
    normalized,
    terminal_rewards,
)


def test_the_reward_falls_on_the_last_sampled_token() -> None:
    mask_BT = torch.tensor([[1.0, 1, 1, 0], [1, 0, 0, 0]])
    rewards_BT = terminal_rewards(torch.tensor([2.0, -1.0]), mask_BT)
    assert rewards_BT.tolist() == [[0, 0, 2, 0], [-1, 0, 0, 0]]


def test_with_lambda_one_the_advantage_is_the_return_minus_the_value() -> None:
    mask_BT = torch.tensor([[1.0, 1, 1, 0]])
    values_BT = torch.tensor([[0.5, -0.25, 0.125, 9.0]])
    advantages_BT = generalized_advantages(terminal_rewards(torch.tensor([1.0]), mask_BT), values_BT, mask_BT, lam=1.0)
    torch.testing.assert_close(advantages_BT, torch.tensor([[0.5, 1.25, 0.875, 0.0]]))


def test_with_lambda_zero_the_advantage_is_the_one_step_error() -> None:
    mask_BT = torch.ones(1, 3)
    values_BT = torch.tensor([[0.5, 0.75, 0.25]])
    advantages_BT = generalized_advantages(terminal_rewards(torch.tensor([1.0]), mask_BT), values_BT, mask_BT, lam=0.0)
    torch.testing.assert_close(advantages_BT, torch.tensor([[0.25, -0.5, 0.75]]))


def test_padding_before_and_after_does_not_change_an_advantage() -> None:
    values_T, rewards_B = torch.tensor([0.3, 0.1, 0.9]), torch.tensor([1.0])
    mask_BT = torch.ones(1, 3)
    plain_BT = generalized_advantages(terminal_rewards(rewards_B, mask_BT), values_T[None], mask_BT, lam=0.95)
    padded_values_BT = torch.tensor([[7.0, 0.3, 0.1, 0.9, 5.0, 6.0]])
    padded_mask_BT = torch.tensor([[0.0, 1, 1, 1, 0, 0]])
    padded_BT = generalized_advantages(
        terminal_rewards(rewards_B, padded_mask_BT), padded_values_BT, padded_mask_BT, lam=0.95
    )
    torch.testing.assert_close(padded_BT[:, 1:4], plain_BT)
    assert padded_BT[0, [0, 4, 5]].tolist() == [0, 0, 0]


def test_each_sample_is_compared_with_the_others_of_its_group() -> None:
    advantage_B = leave_one_out(torch.tensor([1.0, 3.0, 5.0, 10.0]), torch.tensor([0, 0, 0, 1]))
    torch.testing.assert_close(advantage_B, torch.tensor([-3.0, 0.0, 3.0, 0.0]))


def test_mixing_takes_both_baselines_in_their_shares() -> None:
    mixed_BT = mixed_advantages(torch.tensor([[1.0, 2.0]]), torch.tensor([10.0]), torch.tensor([[1.0, 0.0]]), 0.25)
    torch.testing.assert_close(mixed_BT, torch.tensor([[3.25, 0.0]]))


def test_normalized_advantages_have_zero_mean_and_unit_deviation_over_sampled_tokens() -> None:
    mask_BT = torch.tensor([[1.0, 1, 1, 0]])
    advantages_BT = normalized(torch.tensor([[1.0, 2.0, 6.0, 100.0]]), mask_BT)
    torch.testing.assert_close(advantages_BT[0, :3].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(advantages_BT[0, :3].std(unbiased=False), torch.tensor(1.0), atol=1e-4, rtol=0)
    assert advantages_BT[0, 3] == 0


def test_a_batch_of_equal_advantages_teaches_nothing() -> None:
    assert normalized(torch.full((2, 3), 4.0), torch.ones(2, 3)).abs().max() == 0


def test_the_return_of_each_token_is_the_reward_of_its_program() -> None:
    mask_BT = torch.tensor([[0.0, 1, 1, 0]])
    assert monte_carlo_returns(torch.tensor([-0.5]), mask_BT).tolist() == [[0, -0.5, -0.5, 0]]


def test_with_lambda_by_length_a_reward_reaches_the_first_token_of_long_and_short_programs_alike() -> None:
    mask_BT = torch.ones(2, 400)
    mask_BT[1, 40:] = 0
    rewards_BT = terminal_rewards(torch.tensor([1.0, 1.0]), mask_BT)
    by_length = generalized_advantages(rewards_BT, torch.zeros(2, 400), mask_BT, lambdas("length", mask_BT))[:, 0]
    fixed = generalized_advantages(rewards_BT, torch.zeros(2, 400), mask_BT, lambdas(0.95, mask_BT))[:, 0]
    assert by_length.tolist() == pytest.approx([math.exp(-0.5)] * 2, rel=0.02)
    assert fixed[0] < 1e-8


def test_the_spread_of_a_group_is_the_deviation_of_a_normal_one_and_at_least_the_noise() -> None:
    noise = 0.3 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    spread_B = group_spreads(torch.cat([noise, torch.tensor([1.0, 1.0])]), torch.tensor([0] * 2000 + [1, 1]))
    assert float(spread_B[0]) == pytest.approx(0.3, rel=0.05)
    assert float(spread_B[-1]) == pytest.approx(REWARD_NOISE)


def test_one_that_differs_from_fifteen_equal_ones_gives_its_group_a_spread() -> None:
    rewards_B = torch.tensor([1.0] + [0.0] * 15)
    assert float(group_spreads(rewards_B, torch.zeros(16))[0]) > REWARD_NOISE
    advantages_B = group_advantages(rewards_B, torch.zeros(16))
    assert float(advantages_B[0]) == MOST_SPREADS
    assert -0.7 < float(advantages_B[1]) < 0


def test_a_group_of_failures_does_not_drown_differences_of_speed_in_another() -> None:
    rewards_B = torch.tensor([0.2, 0.4, 0.2, 0.4, -1.0, 1.0, -1.0, 1.0])
    advantages_B = group_advantages(rewards_B, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    torch.testing.assert_close(advantages_B[:4], advantages_B[4:])


def test_differences_within_the_noise_stay_small() -> None:
    assert group_advantages(torch.tensor([0.5, 0.51]), torch.tensor([0, 0])).abs().max() <= 0.2 + 1e-6
    assert group_advantages(torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0, 0, 1])).abs().max() == 0


def test_advantages_of_the_critic_are_in_units_of_their_size_and_bounded() -> None:
    mask_BT = torch.tensor([[1.0, 1, 1, 0]])
    small_BT = critic_advantages(torch.tensor([[0.01, -0.01, 0.01, 0.0]]), mask_BT)
    torch.testing.assert_close(small_BT, torch.tensor([[0.2, -0.2, 0.2, 0.0]]))
    large_BT = critic_advantages(torch.tensor([[2.0, -2.0, 2.0, 0.0]]), mask_BT)
    torch.testing.assert_close(large_BT, torch.tensor([[1.0, -1.0, 1.0, 0.0]]))
    one_far_BT = critic_advantages(torch.tensor([[1000.0] + [0.1] * 99]), torch.ones(1, 100))
    assert float(one_far_BT.max()) == MOST_SPREADS


def added_to_the_best(rewards: list[float], row: int, k: int) -> float:
    """Over all choices of the others."""
    others = rewards[:row] + rewards[row + 1 :]
    choices = list(combinations(others, min(k - 1, len(others))))
    return sum(max(0.0, rewards[row] - max(choice)) for choice in choices) / len(choices)


@pytest.mark.parametrize("k", [2, 4, 7])
def test_what_a_sample_adds_to_the_best_of_k_is_the_mean_over_all_choices_of_others(k: int) -> None:
    rewards = [0.3, -0.4, 1.2, 0.3, 0.9]
    found_B = leave_one_out_best(torch.tensor([*rewards, 5.0]), torch.tensor([0] * 5 + [1]), k)
    expected = [added_to_the_best(rewards, row, k) for row in range(5)]
    torch.testing.assert_close(found_B, torch.tensor([*expected, 0.0]))


def test_the_best_of_k_has_the_gradient_of_its_expectation() -> None:
    """Two of three words, by enumeration: sum over pairs of probability x sum of advantage x gradient of log."""
    worth, k = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64), 2
    logits = torch.tensor([0.2, -0.1, -1.0], dtype=torch.float64, requires_grad=True)
    chances = torch.softmax(logits, 0)
    pairs = [(first, second) for first in range(3) for second in range(3)]
    best = sum((chances[a] * chances[b] * torch.maximum(worth[a], worth[b]) for a, b in pairs), torch.tensor(0.0))
    (expected,) = torch.autograd.grad(best, logits)
    logs, found = torch.log_softmax(logits, 0), torch.zeros(3, dtype=torch.float64)
    for a, b in pairs:
        added = leave_one_out_best(worth[[a, b]], torch.zeros(2), k)
        (gradient,) = torch.autograd.grad(added[0] * logs[a] + added[1] * logs[b], logits, retain_graph=True)
        found += (chances[a] * chances[b]).detach() * gradient
    torch.testing.assert_close(found, expected)


def test_the_best_is_mixed_with_the_mean_in_its_share() -> None:
    rewards_B, groups_B = torch.tensor([0.0, 0.2, 0.1, 0.0]), torch.zeros(4)
    mean_B, best_B, half_B = (group_advantages(rewards_B, groups_B, share, 4) for share in (0.0, 1.0, 0.5))
    torch.testing.assert_close(half_B, (mean_B + best_B) / 2)
    assert best_B[0] == 0 and best_B[1] > best_B[2]
