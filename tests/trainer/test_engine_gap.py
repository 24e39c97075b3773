"""An engine that computes another policy than the trainer is told of: real networks sample programs, one of them bent.

Samples are seeded. What is compared are the log-probabilities that travel with programs.
"""

import copy
import logging
from collections.abc import Callable

import pytest
import torch

from services.generator.policy.comparison import GapLimits
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.learner import MOST_PROGRAM_GAP, MOST_TOKEN_GAP, Learner
from services.trainer.policy_model import PolicyNetworks, text_batch
from sparsesmith.policy.encoder import collate
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.reward import RewardRecord
from tests.generator.tiny_policy import make_tokenizer
from tests.trainer.records import PATTERN, make_batch, make_record, make_sampled
from tests.trainer.test_learner import make_networks

PROGRAMS, TOKENS = 6, 48
BOS: int = make_tokenizer().encode("<bos>").ids[0]

Bend = Callable[[PolicyNetworks], None]


def straight(networks: PolicyNetworks) -> None:
    """Nothing is wrong."""


@torch.no_grad()
def one_layer_scaled(networks: PolicyNetworks) -> None:
    for parameter in networks.model.model.layers[1].parameters():
        parameter.mul_(1.02)


@torch.no_grad()
def stale_encoder(networks: PolicyNetworks) -> None:
    """Of another version: the language model is new, the matrix is embedded as before."""
    random = torch.Generator().manual_seed(5)
    for parameter in networks.encoder.parameters():
        parameter.add_(0.05 * parameter.std() * torch.randn(parameter.shape, generator=random))


@torch.no_grad()
def sampled(networks: PolicyNetworks, temperature: float = 1.0) -> list[RewardRecord]:
    """Programs with the log-probabilities that the engine has for them; the record says temperature 1."""
    sampled, random = make_sampled(), torch.Generator().manual_seed(11)
    workload = make_record().workload
    prompts = collate([prompt_inputs(PATTERN, workload, sampled.prompt)] * PROGRAMS)
    tokens: list[list[int]] = [[] for _ in range(PROGRAMS)]
    logprobs: list[list[float]] = [[] for _ in range(PROGRAMS)]
    for _ in range(TOKENS):
        text = text_batch([[BOS]] * PROGRAMS, [[*written, 0] for written in tokens])
        last_BH = networks.hidden_states(prompts, text)[:, -1]
        words_BV = torch.log_softmax(networks.model.lm_head(last_BH).float() / temperature, dim=-1)
        for row, word in enumerate(torch.multinomial(words_BV.exp(), 1, generator=random)[:, 0].tolist()):
            tokens[row].append(word)
            logprobs[row].append(float(words_BV[row, word]))
    return [
        make_record(
            str(row),
            reward=row / PROGRAMS,
            origin=make_sampled(token_ids=tuple(written), logprobs=tuple(logprobs[row])),
        )
        for row, written in enumerate(tokens)
    ]


def told(bend: Bend, temperature: float, caplog: pytest.LogCaptureFixture) -> dict[str, float]:
    """What an update says of the engine that wrote its records."""
    networks = make_networks()
    engine = copy.deepcopy(networks)
    bend(engine)
    learner = Learner(networks, LearnerOptions(epochs=1, critic_gate=0.0))
    with caplog.at_level(logging.WARNING):
        return learner.update(make_batch(*sampled(engine, temperature)))


def test_an_engine_that_computes_our_policy_raises_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    metrics = told(straight, 1.0, caplog)
    assert metrics["logprob_gap"] < 0.1 * MOST_TOKEN_GAP
    assert metrics["logprob_gap_program"] < 0.1 * MOST_PROGRAM_GAP
    assert "off ours" not in caplog.text


@pytest.mark.parametrize(
    ("bend", "temperature"),
    [(one_layer_scaled, 1.0), (straight, 1.1), (stale_encoder, 1.0)],
    ids=["one layer scaled by 1.02", "another temperature", "a stale encoder"],
)
def test_an_engine_that_computes_another_policy_raises_the_alarm(
    bend: Bend, temperature: float, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = told(bend, temperature, caplog)
    assert metrics["logprob_gap"] > MOST_TOKEN_GAP or metrics["logprob_gap_program"] > MOST_PROGRAM_GAP
    assert "off ours" in caplog.text


def test_the_canary_refuses_beyond_the_same_distances() -> None:
    assert (GapLimits().per_token, GapLimits().per_program) == (MOST_TOKEN_GAP, MOST_PROGRAM_GAP)
