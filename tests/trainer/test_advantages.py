import math

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
    drawn = 0.3 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    spread_B = group_spreads(torch.cat([drawn, torch.tensor([1.0, 1.0])]), torch.tensor([0] * 2000 + [1, 1]))
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
