"""A critic that begins as a value model: what it says before any update, and that it learns; toy networks."""

import copy
from pathlib import Path

import pytest
import torch

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.critic_record import values_at_token
from services.trainer.online.learner import Learner
from services.trainer.opened_policy import load_networks
from services.trainer.policy_model import CRITIC_TOKEN, PolicyNetworks
from services.trainer.value_critic import ValueCritic, expected_rewards
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.value import ValueModel, padded, save_value_model
from tests.generator.tiny_policy import make_policy, make_tokenizer, write_policy
from tests.trainer.records import make_batch, make_record, make_sampled
from tests.trainer.test_learner import make_learner

BOS = make_tokenizer().token_to_id("<bos>") or 0


def make_value_model() -> ValueModel:
    torch.manual_seed(4)
    policy = make_policy(seed=4)
    return ValueModel(policy.model, policy.encoder)


def make_networks(knows_failures: bool = True) -> PolicyNetworks:
    policy = make_policy()
    return PolicyNetworks(policy.model, policy.encoder, ValueCritic(make_value_model(), knows_failures))


PROGRAMS = [(*range(2 * length, 3 * length), 0) for length in (15, 11, 24)]
BATCH = make_batch(
    *(
        make_record(str(number), reward=number / 2, origin=make_sampled(token_ids=program))
        for number, program in enumerate(PROGRAMS)
    )
)


@torch.no_grad()
def test_its_values_at_the_tenth_token_are_the_value_models_of_the_program_so_far() -> None:
    learner, model = Learner(make_networks(), LearnerOptions("ppo")), make_value_model().eval()
    values_BT = learner.networks.values(torch.empty(0), BATCH.prompts, BATCH.text)
    token_ids, lengths = padded([[BOS, *program[: CRITIC_TOKEN - 1]] for program in PROGRAMS])
    passes, log_times = model(BATCH.prompts, token_ids, lengths)
    expected = expected_rewards(passes, log_times, torch.zeros(()))
    found = values_at_token(values_BT, BATCH.text.sampled_mask_BT.float())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert float(expected.std()) > 1e-4, "programs are told apart"


@torch.no_grad()
def test_a_value_model_that_saw_no_failures_says_nothing_of_passing() -> None:
    values_BT = make_networks(knows_failures=False).values(torch.empty(0), BATCH.prompts, BATCH.text)
    assert bool(values_BT.isfinite().all())
    assert not torch.equal(values_BT, make_networks().values(torch.empty(0), BATCH.prompts, BATCH.text))


def test_it_learns_the_rewards_and_leaves_the_policy_and_its_own_encoder_alone() -> None:
    networks = make_networks()
    assert isinstance(networks.value_head, ValueCritic)
    before = copy.deepcopy(networks.state_dict())
    learner = make_learner(networks, critic_gate=1.0, critic_warmup=100, value_clip=100.0, value_rate=3e-3, epochs=4)
    losses = [learner.update(BATCH)["value_loss"] for _ in range(8)]
    assert losses[-1] < 0.5 * losses[0]
    after = learner.networks.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith("value_head.") for name in moved)
    assert not any("encoder." in name or "embed_tokens" in name for name in moved)


def test_a_state_of_another_critic_is_gone_on_from_with_a_fresh_one() -> None:
    learner = Learner(make_networks(), LearnerOptions("ppo"))
    of_head = make_learner().state_dict()
    learner.load_state_dict(of_head)
    learner.load_state_dict(copy.deepcopy(learner.state_dict()))


def write_value_model(folder: Path, tokenizer: str | None = None) -> Path:
    save_value_model(make_value_model(), PolicyDescription("value", "structural"), folder)
    save_tokenizer(tokenizer or make_tokenizer().to_str(), folder)
    return folder


def test_a_folder_becomes_the_critic_where_it_fits_the_policy(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy", make_policy())
    networks = load_networks(policy, write_value_model(tmp_path / "value"))
    assert isinstance(networks.value_head, ValueCritic)
    with pytest.raises(InvalidOption, match=r"value\.safetensors is missing"):
        load_networks(policy, policy)
    other = make_tokenizer()
    other.add_tokens(["another"])
    with pytest.raises(InvalidOption, match="its tokenizer is not the policy's"):
        load_networks(policy, write_value_model(tmp_path / "other", other.to_str()))
