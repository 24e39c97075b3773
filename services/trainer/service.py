"""The trainer's parts, made of its settings."""

import re
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
from services.trainer.online.ranks import ranks
from services.trainer.online.vouching import Vouching
from services.trainer.policy_model import PolicyNetworks, ValueHead
from services.trainer.settings import TrainerSettings
from services.trainer.tokenizer import load_tokenizer
from services.trainer.training import Workshop
from services.trainer.value_critic import load_critic
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import load_policy
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.traces import traces_to

SEED = 0

DIGEST = re.compile("[0-9a-f]{64}")

Options = TypeVar("Options", LearnerOptions, IntakeOptions)


def open_workshop(settings: TrainerSettings, connection: Redis, on_update: OnEntry = unheard) -> Workshop:
    """Loads the policy. Raises InvalidOption where its folder was made for other features, and for an algorithm that
    nobody registered."""
    networks = load_networks(settings.policy_dir, settings.value_dir)
    learner = open_learner(settings, networks)
    rules = BatchRules(
        encoder=networks.encoder.kind,
        vocabulary=networks.model.config.vocab_size,
        max_text_tokens=settings.max_text_tokens,
        max_policy_age=settings.max_policy_age,
        reward=settings.reward,
        held_out=_held_out(settings.held_out_file),
        imitates=settings.imitation_share > 0,
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
        imitated_programs=settings.imitated_programs,
    )


def open_learner(settings: TrainerSettings, networks: PolicyNetworks) -> Learner:
    """On this process's device."""
    device = _device(settings)
    return Learner(networks, chosen(LearnerOptions, settings), device, SEED, ranks(device))


def follow(settings: TrainerSettings) -> int:
    """As a process that torchrun started beside the first: the number of updates made."""
    return open_learner(settings, load_networks(settings.policy_dir, settings.value_dir)).follow()


def _held_out(file: Path | None) -> frozenset[str]:
    """Raises InvalidOption for a file that cannot be read, and for a line that is no digest."""
    if file is None:
        return frozenset()
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"held_out_file {file}: {error}", field="held_out_file", value=str(file)) from error
    for line in lines:
        if not DIGEST.fullmatch(line):
            raise InvalidOption(
                f"held_out_file {file}: {line!r} is no SHA-256 of 64 hexadecimal digits",
                field="held_out_file",
                value=line,
                limit="64 hexadecimal digits a line",
            )
    return frozenset(lines)


def load_networks(folder: Path, value_dir: Path | None = None) -> PolicyNetworks:
    """A policy folder's networks in float32 on the CPU, with a fresh value head, or with a critic that begins as the
    value model of `value_dir`. Raises InvalidOption where that does not fit the policy."""
    policy = load_policy(folder)
    torch.manual_seed(SEED)
    if value_dir is None:
        return PolicyNetworks(policy.model, policy.encoder, ValueHead(policy.model.config.hidden_size))
    critic = load_critic(value_dir, policy.encoder.kind, load_tokenizer(folder / "tokenizer.json"))
    return PolicyNetworks(policy.model, policy.encoder, critic)


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
