"""Expert iteration: who is imitated, and that imitation alone finds the better program."""

import torch

from services.trainer.online.algorithm import Forward, LearnerOptions, Rollout
from services.trainer.online.expert import Expert, best_of_groups
from tests.trainer.records import make_batch, make_record, make_sampled
from tests.trainer.test_learner import ARMS, REWARDED, logprob_of, make_learner, updated


def test_the_best_quarter_of_each_group_is_imitated_where_it_is_better_than_the_others() -> None:
    rewards = torch.tensor([1.0, 0.9, 0.8, 0.2, 0.1, 0.0, -0.4, -1.0, 0.5, 0.5, 0.5, 0.3, 0.7])
    groups = torch.tensor([0] * 8 + [1] * 3 + [2] * 2)
    assert best_of_groups(rewards, groups).nonzero().flatten().tolist() == [0, 1, 12]


def test_failures_teach_nothing_and_the_loss_is_that_of_supervised_training() -> None:
    records = [
        make_record("best", reward=1.0, origin=make_sampled(token_ids=(20, 21, 0))),
        make_record("worse", reward=0.1, origin=make_sampled(token_ids=(30, 0))),
        make_record("failed", reward=-0.4, origin=make_sampled(group="g2", token_ids=(40, 0))),
        make_record("failed-worse", reward=-1.0, origin=make_sampled(group="g2", token_ids=(41, 0))),
    ]
    batch = make_batch(*records)
    mask_BT, zeros = batch.text.sampled_mask_BT.float(), torch.zeros_like(batch.behaviour_BT)
    expert, rollout = Expert(LearnerOptions(kl_coefficient=0.0)), Rollout(zeros, zeros)
    targets = expert.targets(batch, rollout)
    current = -torch.rand(zeros.shape, generator=torch.Generator().manual_seed(0)) * mask_BT
    losses = expert.losses(Forward(current, zeros, zeros, zeros), rollout, targets, mask_BT)
    expected = -current[0][mask_BT[0] > 0].sum() / mask_BT.sum()
    torch.testing.assert_close(losses.total, expected)


def test_the_rewarded_program_becomes_likely() -> None:
    learner = make_learner(algorithm="expert", program_kl_limit=0.5)
    before = logprob_of(learner, REWARDED)
    updated(learner, 8)
    assert logprob_of(learner, REWARDED) > before + 1
    assert logprob_of(learner, REWARDED) > max(logprob_of(learner, arm) for arm in ARMS if arm != REWARDED)
