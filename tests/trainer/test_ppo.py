import math

import pytest
import torch

from services.trainer.online.ppo import Clip, policy_loss, value_loss
from services.trainer.online.terms import (
    explained_variance,
    importance_weights,
    program_mean,
)
from services.trainer.policy_model import divergences

ONE = torch.ones(1, 1)


def loss_and_gradient(ratio: float, advantage: float) -> tuple[float, float]:
    current_BT = torch.tensor([[math.log(ratio)]], requires_grad=True)
    loss, _ = policy_loss(current_BT, torch.zeros(1, 1), ONE, torch.tensor([[advantage]]), ONE, Clip(0.2, 0.28))
    loss.backward()  # type: ignore[no-untyped-call]
    assert current_BT.grad is not None
    return loss.item(), current_BT.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.0, 2.0, -2.0), (1.5, 2.0, -2.56), (0.5, 2.0, -1.0), (1.5, -2.0, 3.0), (0.5, -2.0, 1.6)],
)
def test_the_surrogate_is_clipped_on_the_optimistic_side_only(ratio: float, advantage: float, expected: float) -> None:
    assert loss_and_gradient(ratio, advantage)[0] == pytest.approx(expected, rel=1e-5)


def test_a_clipped_token_has_no_gradient() -> None:
    assert loss_and_gradient(1.5, 2.0)[1] == 0
    assert loss_and_gradient(0.5, -2.0)[1] == 0
    assert loss_and_gradient(1.1, 2.0)[1] < 0


def test_the_clip_fraction_counts_the_tokens_whose_clip_is_active() -> None:
    current_BT = torch.log(torch.tensor([[1.5, 1.0, 0.5, 1.5]]))
    advantages_BT = torch.tensor([[1.0, 1.0, -1.0, 1.0]])
    mask_BT = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    _, fraction = policy_loss(current_BT, torch.zeros(1, 4), torch.ones(1, 4), advantages_BT, mask_BT, Clip())
    assert fraction.item() == pytest.approx(2 / 3)


def test_importance_weights_are_truncated_above_and_one_on_padding() -> None:
    proximal_BT = torch.log(torch.tensor([[0.9, 0.1, 0.5]]))
    behaviour_BT = torch.log(torch.tensor([[0.3, 0.2, 0.1]]))
    weights_BT = importance_weights(proximal_BT, behaviour_BT, torch.tensor([[1.0, 1.0, 0.0]]), cap=2.0)
    torch.testing.assert_close(weights_BT, torch.tensor([[2.0, 0.5, 1.0]]))


def test_the_divergence_of_a_token_is_over_all_words() -> None:
    first, second = (
        torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]),
        torch.tensor([[0.25, 0.25, 0.5], [0.2, 0.4, 0.4]]),
    )
    found_N = divergences(torch.log(first.clamp(min=1e-30)), torch.log(second))
    torch.testing.assert_close(found_N, torch.tensor([0.25 * math.log(2), math.log(5)]))
    assert divergences(torch.log(second), torch.log(second)).abs().max() == 0


def test_the_value_loss_ignores_gains_from_leaving_the_clip_range() -> None:
    returns_BT, old_BT = torch.tensor([[1.0]]), torch.tensor([[0.0]])
    assert value_loss(torch.tensor([[1.0]]), old_BT, returns_BT, ONE, clip=0.2).item() == pytest.approx(0.32)
    assert value_loss(torch.tensor([[0.1]]), old_BT, returns_BT, ONE, clip=0.2).item() == pytest.approx(0.405)


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant_one() -> None:
    returns_BT, mask_BT = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3)
    assert explained_variance(returns_BT, returns_BT, mask_BT).item() == pytest.approx(1)
    assert explained_variance(torch.full((1, 3), 2.0), returns_BT, mask_BT).item() == pytest.approx(0, abs=1e-6)


def test_a_mean_over_programs_is_of_sums_over_their_tokens() -> None:
    value_BT, mask_BT = torch.tensor([[1.0, 2.0], [4.0, 100.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    assert float(program_mean(value_BT, mask_BT)) == 3.5
