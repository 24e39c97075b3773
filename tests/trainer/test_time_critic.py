"""The taught critic: rewards from the time that it expects and the time that the library takes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import nn

from services.trainer.offline.critic_training import CriticSettings, States, drawn, read_states, teach
from services.trainer.offline.prompt_pool import build_pool
from services.trainer.offline.value_training import Programs
from services.trainer.online.checkpoints import policy_identity
from services.trainer.opened_policy import load_networks, open_policy
from services.trainer.policy_model import CRITIC_TOKEN, PolicyNetworks, ValueHead, text_batch
from services.trainer.settings import TrainerSettings
from services.trainer.time_critic import TimeCritic, TimeHead, load_time_critic, save_time_head
from services.trainer.tokenizer import BOS_ID
from sparsesmith.errors import InvalidOption
from sparsesmith.reward import CORRECT, FASTEST, SLOWEST
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import HIDDEN, make_policy, write_policy
from tests.trainer.conftest import make_networks
from tests.trainer.records import make_batch, make_record, make_sampled
from tests.trainer.test_learner import make_learner
from tests.trainer.test_supervised import PATTERNS
from tests.trainer.test_value import make_workloads

SETTINGS = CriticSettings(programs=5, temperature=10.0, passes=60, states=256, rate=3e-3, batch=4)


def expecting(log2_us: float) -> TimeHead:
    """The same of every program."""
    head = TimeHead(HIDDEN)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    nn.init.constant_(head.last.bias, log2_us)
    return head


@torch.no_grad()
def test_a_value_is_the_reward_that_follows_from_the_two_times() -> None:
    critic = TimeCritic(expecting(1.0), HIDDEN)
    values_BT = critic(torch.randn(4, 3, HIDDEN), torch.tensor([2.0, 4.0, 1e6, 1e-6]))
    expected = [CORRECT, CORRECT + 1, CORRECT + FASTEST, CORRECT + SLOWEST]
    torch.testing.assert_close(values_BT, torch.tensor(expected)[:, None].expand(4, 3))


def test_without_the_librarys_time_it_says_nothing() -> None:
    with pytest.raises(ValueError, match="what the library takes"):
        TimeCritic(expecting(1.0), HIDDEN)(torch.zeros(1, 1, HIDDEN))


def records(log2_us: float) -> list[RewardRecord]:
    """Of workloads on which the library takes longer and longer, by programs that all take the same."""
    found = []
    for number in range(64):
        library_us = 2.0 ** (1 + number % 8 / 8)
        origin = make_sampled(group=f"g{number % 8}", token_ids=(20 + number % 4, 0))
        record = make_record(str(number), reward=CORRECT + math.log2(library_us) - log2_us, origin=origin)
        found.append(record.model_copy(update={"best_baseline_us": library_us}))
    return found


def learner_with(critic: TimeCritic | None) -> PolicyNetworks:
    policy = make_policy()
    return PolicyNetworks(policy.model, policy.encoder, critic)


def test_a_policy_need_not_wait_for_a_critic_that_was_taught() -> None:
    taught = make_learner(learner_with(TimeCritic(expecting(0.5), HIDDEN)), critic_gate=0.5, critic_warmup=100)
    told = taught.update(make_batch(*records(0.5)))
    assert told["explained_variance_10"] == pytest.approx(1, abs=1e-4)
    assert told["critic_holds"] == 1
    fresh = make_learner(critic_gate=0.5, critic_warmup=100).update(make_batch(*records(0.5)))
    assert (fresh["critic_holds"], fresh["policy_moved"]) == (0, 0)


def test_what_the_times_leave_is_learned_live_and_what_was_taught_stays() -> None:
    critic = TimeCritic(expecting(0.0), HIDDEN)
    learner = make_learner(learner_with(critic), matrix_rate=0.0, other_rate=0.0, epochs=8, value_clip=10.0)
    before = [parameter.clone() for parameter in critic.times.parameters()]
    losses = [learner.update(make_batch(*records(0.5)))["value_loss"] for _ in range(6)]
    assert losses[-1] < 0.2 * losses[0]
    assert all(torch.equal(*pair) for pair in zip(before, critic.times.parameters(), strict=True))


def test_a_state_of_another_critic_is_gone_on_from_with_the_taught_one() -> None:
    learner = make_learner(learner_with(TimeCritic(expecting(0.5), HIDDEN)))
    learner.load_state_dict(make_learner().state_dict())
    critic = learner.networks.value_head
    assert isinstance(critic, TimeCritic) and float(critic.times.last.bias.detach()) == 0.5


def test_a_policys_folder_holds_it(tmp_path: Path) -> None:
    folder = write_policy(tmp_path, make_policy())
    identity = policy_identity(folder)
    assert isinstance(load_networks(folder, taught_critic=True).value_head, ValueHead), "there is none"
    save_time_head(head := TimeHead(HIDDEN), folder)
    assert policy_identity(folder) == identity, "checkpoints go on"
    assert isinstance(load_networks(folder).value_head, ValueHead), "it is not asked for"
    critic = load_networks(folder, taught_critic=True).value_head
    assert isinstance(critic, TimeCritic)
    states = torch.randn(2, 3, HIDDEN)
    assert torch.equal(critic.times(states), head(states))
    with pytest.raises(InvalidOption, match=f"of {HIDDEN} numbers, the policy's have {HIDDEN + 1}"):
        load_time_critic(folder, HIDDEN + 1)


def test_the_shipped_policy_has_one() -> None:
    folder = Path(__file__).parents[2] / "models" / "sparsesmith-28m"
    critic = load_time_critic(folder, json.loads((folder / "config.json").read_text())["hidden_size"])
    assert critic is not None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, ValueHead),
        ({"taught_critic": True}, TimeCritic),
        ({"taught_critic": True, "reward": "paper"}, ValueHead),
    ],
)
def test_it_is_the_critic_where_it_is_asked_for_of_the_reward_that_it_foretells(
    changes: dict[str, Any], kind: type[nn.Module], tmp_path: Path
) -> None:
    folder = write_policy(tmp_path, make_policy())
    save_time_head(TimeHead(HIDDEN), folder)
    opened = open_policy(TrainerSettings(policy_dir=folder, **changes), "cpu")
    assert type(opened.networks.value_head) is kind


def test_faster_programs_are_drawn_more_often() -> None:
    (workload, *_) = make_workloads()
    few = [drawn(workload, CriticSettings(programs=1, temperature=0.1), number)[0] for number in range(200)]
    assert few.count(0) > 150
    assert drawn(workload, SETTINGS, 0) == [0, 1, 2, 3, 4]
    assert len(again := drawn(workload, CriticSettings(programs=20, again=True), 0)) == 20 > len(set(again))


def test_states_are_kept_before_all_of_the_first_tokens_and_some_of_the_later_ones(tokenizer: Tokenizer) -> None:
    workloads, programs = make_workloads(), Programs(tokenizer)
    networks, pool = make_networks(tokenizer), build_pool(PATTERNS, "structural", 1, "cpu")
    states = read_states(networks, pool, workloads, programs, SETTINGS, log=lambda _: None)
    count = SETTINGS.programs * len(workloads)
    assert [len(states.at(token).log2_us_N) for token in (1, CRITIC_TOKEN, 24, 25, 32, 33, 48)] == [
        *(count, count, count, 0, count, 0, count)
    ]
    assert sorted(states.at(1).log2_us_N.tolist()) == pytest.approx(
        sorted(time / math.log(2) for workload in workloads for time in workload.log_times)
    )
    (row,) = ((states.token_N == CRITIC_TOKEN) & (states.workload_N == 1)).nonzero()[:1]
    text = text_batch([[BOS_ID]], [programs.ids(workloads[1].programs[0])[1:]])
    prompts = pool.batch([workloads[1].pattern], [workloads[1].asked], np.random.default_rng(SETTINGS.seed))
    with torch.no_grad():
        expected = networks.hidden_states(prompts, text)[0, CRITIC_TOKEN]
    torch.testing.assert_close(states.hidden_NH[row].float()[0], expected, atol=2e-3, rtol=2e-3)


def synthetic(seed: int, count: int = 2000) -> States:
    """Times that are a sum of what the states say."""
    generator = torch.Generator().manual_seed(seed)
    hidden, workloads = torch.randn(count, 16, generator=generator), torch.arange(count) % 40
    token = torch.full((count,), CRITIC_TOKEN)
    return States(hidden.half(), hidden[:, :4].sum(dim=1) + 3.0, workloads, token)


def test_the_head_is_taught_times() -> None:
    head, report = teach(synthetic(0), synthetic(1), SETTINGS, log=lambda _: None)
    assert (report.train_workloads, report.states) == (40, 2000)
    assert 0.95 < report.validation_explained <= report.train_explained < 1
    assert report.checks[-1] == report.validation_explained > report.checks[0]
    assert report.validation_error < 0.5
    again, _ = teach(synthetic(0), synthetic(1), SETTINGS, log=lambda _: None)
    assert torch.equal(again.first.weight, head.first.weight)


def test_each_workload_counts_the_same() -> None:
    states = synthetic(0, 400)
    of_many = torch.cat([torch.zeros(360), torch.arange(1, 41)]).long()
    times = (of_many > 0).float()
    head, _ = teach(
        States(torch.zeros_like(states.hidden_NH), times, of_many, states.token_N), states, SETTINGS, log=lambda _: None
    )
    assert float(head(torch.zeros(1, 16)).detach()) == pytest.approx(1, abs=0.1), "40 workloads of 41 say 1"
