"""The trainer's parts, made of its settings."""

import re
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import torch

from services.trainer.online.algorithm import Algorithm, LearnerOptions
from services.trainer.online.algorithms import algorithm_of
from services.trainer.online.batch import BatchRules, RecordReader
from services.trainer.online.checkpoints import CheckpointFolder
from services.trainer.online.intake import IntakeOptions, RecordIntake
from services.trainer.online.journal import Journal, OnEntry, unheard
from services.trainer.online.learner import Learner
from services.trainer.online.publishing import Publisher
from services.trainer.online.ranks import ranks
from services.trainer.online.vouching import Vouching
from services.trainer.opened_policy import SEED, OpenedPolicy, open_policy
from services.trainer.settings import TrainerSettings
from services.trainer.training import Workshop
from sparsesmith.errors import InvalidOption
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.traces import traces_to

DIGEST = re.compile("[0-9a-f]{64}")

Options = TypeVar("Options", LearnerOptions, IntakeOptions)


def open_workshop(settings: TrainerSettings, connection: Redis, on_update: OnEntry = unheard) -> Workshop:
    """Loads the policy. Raises InvalidOption where its folder was made for other features, and for an algorithm that
    nobody registered."""
    device = _device(settings)
    policy = open_policy(settings, device)
    learner = open_learner(settings, policy, device)
    rules = BatchRules(
        encoder=policy.prompts.encoder,
        vocabulary=policy.vocabulary,
        max_text_tokens=settings.max_text_tokens,
        max_policy_age=settings.max_policy_age,
        reward=settings.reward,
        held_out=_held_out(settings.held_out_file),
        imitates=settings.imitation_share > 0,
    )
    reader = RecordReader(PatternStore(connection), policy.prompts, rules)
    channel = PolicyChannel(connection)
    return Workshop(
        policy=policy.identity,
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


def open_learner(settings: TrainerSettings, policy: OpenedPolicy, device: str) -> Learner:
    """On this process's device. Raises InvalidOption for an algorithm that nobody registered, and where a critic is
    chosen for one that has none."""
    options, own = chosen(LearnerOptions, settings), ranks(device)
    _check_critic(settings, algorithm_of(options))
    return Learner(policy.networks, options, own.device, SEED, own)


def _check_critic(settings: TrainerSettings, algorithm: Algorithm) -> None:
    critics = {"taught_critic": settings.taught_critic or None, "value_dir": settings.value_dir}
    for field, value in critics.items():
        if value is not None and not algorithm.needs_critic:
            raise InvalidOption(
                f"{field} {value}: the algorithm {settings.algorithm} has no critic (limit: one that has, as ppo)",
                field=field,
                value=str(value),
                limit="an algorithm that has a critic, as ppo",
            )


def follow(settings: TrainerSettings) -> int:
    """As a process that torchrun started beside the first: the number of updates made."""
    device = _device(settings)
    return open_learner(settings, open_policy(settings, device), device).follow()


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


def chosen(kind: type[Options], settings: TrainerSettings) -> Options:
    """An options dataclass with the settings of the same names."""
    return kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})


def _device(settings: TrainerSettings) -> str:
    """Chooses and limits the device."""
    has_gpu = torch.cuda.is_available()
    if settings.device == "cpu" or (settings.device == "auto" and not has_gpu):
        torch.set_num_threads(settings.num_threads)
        return "cpu"
    if settings.gpu >= (count := torch.cuda.device_count()):
        raise InvalidOption(
            f"gpu {settings.gpu}: {count} GPUs are seen, counted from 0",
            field="gpu",
            value=settings.gpu,
            limit=count - 1,
        )
    torch.cuda.set_device(settings.gpu)
    torch.cuda.set_per_process_memory_fraction(settings.gpu_memory_fraction, settings.gpu)
    return "cuda"
