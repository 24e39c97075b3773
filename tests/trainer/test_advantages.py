import torch

from services.trainer.online.advantages import (
    generalized_advantages,
    leave_one_out,
    mixed_advantages,
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
