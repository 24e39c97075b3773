"""The trainer's parts, made of its settings."""

from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import torch

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import BatchRules, RecordReader
from services.trainer.online.checkpoints import CheckpointFolder, policy_identity
from services.trainer.online.intake import IntakeOptions, RecordIntake
from services.trainer.online.journal import Journal, OnEntry, unheard
from services.trainer.online.learner import Learner
from services.trainer.online.publishing import Publisher
from services.trainer.online.vouching import Vouching
from services.trainer.policy_model import PolicyNetworks, ValueHead
from services.trainer.settings import TrainerSettings
from services.trainer.tokenizer import load_tokenizer
from services.trainer.training import Workshop
from sparsesmith.policy.checkpoint import load_policy
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.traces import traces_to

SEED = 0

Options = TypeVar("Options", LearnerOptions, IntakeOptions)


def open_workshop(settings: TrainerSettings, connection: Redis, on_update: OnEntry = unheard) -> Workshop:
    """Loads the policy. Raises InvalidOption where its folder was made for other features, and for an algorithm that
    nobody registered."""
    networks = load_networks(settings.policy_dir)
    learner = Learner(networks, chosen(LearnerOptions, settings), _device(settings), SEED)
    rules = BatchRules(
        encoder=networks.encoder.kind,
        vocabulary=networks.model.config.vocab_size,
        max_text_tokens=settings.max_text_tokens,
        max_policy_age=settings.max_policy_age,
        reward=settings.reward,
    )
    tokenizer = load_tokenizer(settings.policy_dir / "tokenizer.json")
    reader = RecordReader(PatternStore(connection), tokenizer, rules)
    channel = PolicyChannel(connection)
    return Workshop(
        policy=policy_identity(settings.policy_dir),
        learner=learner,
        intake=RecordIntake(RewardStream(connection), reader, chosen(IntakeOptions, settings)),
        checkpoints=CheckpointFolder(settings.state_dir / "checkpoints", settings.keep_checkpoints),
        publisher=Publisher(settings.exchange_dir, channel, settings.keep_published),
        channel=channel,
        vouching=Vouching(learner, reader),
        journal=Journal(settings.state_dir / "updates.jsonl", on_update),
        verdicts=Journal(settings.state_dir / "verdicts.jsonl"),
        traces=traces_to(settings.traces_endpoint, "sparsesmith-trainer"),
    )


def load_networks(folder: Path) -> PolicyNetworks:
    """A policy folder's networks in float32 with a fresh value head, on the CPU."""
    policy = load_policy(folder)
    torch.manual_seed(SEED)
    return PolicyNetworks(policy.model, policy.encoder, ValueHead(policy.model.config.hidden_size))


def chosen(kind: type[Options], settings: TrainerSettings) -> Options:
    """An options dataclass with the settings of the same names."""
    return kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})


def _device(settings: TrainerSettings) -> str:
    """Chooses and limits the device."""
    has_gpu = torch.cuda.is_available()
    if settings.device == "cpu" or (settings.device == "auto" and not has_gpu):
        torch.set_num_threads(settings.num_threads)
        return "cpu"
    torch.cuda.set_per_process_memory_fraction(settings.gpu_memory_fraction)
    return "cuda"
