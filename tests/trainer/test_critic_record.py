import pytest
import torch
from torch import Tensor

from services.trainer.online.critic_record import CriticRecord, values_at_token


def make_values(values_B: Tensor, length: int = 20) -> tuple[Tensor, Tensor]:
    """The same value at each token, after a prompt of two, with the mask of sampled ones."""
    mask_BT = torch.ones(len(values_B), length)
    mask_BT[:, :2] = 0
    return values_B[:, None].expand(-1, length) * mask_BT, mask_BT


def record_of(values_B: Tensor, rewards_B: Tensor, batch: int = 32) -> CriticRecord:
    record = CriticRecord()
    for start in range(0, len(rewards_B), batch):
        values_BT, mask_BT = make_values(values_B[start : start + batch])
        record = record.after(values_BT, rewards_B[start : start + batch], mask_BT)
    return record


def noise(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_value_is_that_of_the_tenth_sampled_token_or_of_the_last() -> None:
    values_BT = torch.arange(20.0).expand(2, 20)
    mask_BT = torch.zeros(2, 20)
    mask_BT[0, 3:19] = 1
    mask_BT[1, 3:7] = 1
    assert values_at_token(values_BT, mask_BT).tolist() == [12, 6]


def test_a_critic_that_is_right_explains_everything_and_one_that_says_nothing_nothing() -> None:
    rewards_B = noise(640, 0)
    assert record_of(rewards_B, rewards_B).explained_variance == pytest.approx(1)
    assert record_of(torch.zeros(640), rewards_B).explained_variance == pytest.approx(0, abs=1e-6)
    assert record_of(-rewards_B, rewards_B).explained_variance == pytest.approx(-3, rel=1e-3)


def test_what_a_critic_cannot_know_stays_unexplained() -> None:
    known_B, noise_B = noise(640, 1), noise(640, 2)
    assert record_of(known_B, known_B + noise_B).explained_variance == pytest.approx(0.5, abs=0.1)


def test_a_constant_error_is_no_lack_of_explanation() -> None:
    rewards_B = noise(640, 3)
    assert record_of(rewards_B + 5, rewards_B).explained_variance == pytest.approx(1)


def test_newer_records_count_more() -> None:
    rewards_B = noise(1280, 4)
    learned_B = torch.cat([torch.zeros(640), rewards_B[640:]])
    assert record_of(learned_B, rewards_B).explained_variance > 0.9


def test_of_few_records_or_equal_rewards_nothing_is_said() -> None:
    assert record_of(noise(32, 5), noise(32, 5)).explained_variance == 0
    assert record_of(torch.full((640,), 0.3), torch.full((640,), 0.3)).explained_variance == 0
