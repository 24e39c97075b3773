"""The policy that is to be trained, with what the trainer must know of it: one with a matrix encoder, or one asked in
words."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from services.trainer.adapters import AdaptedModel, AdapterOptions, check_output_layer
from services.trainer.online.checkpoints import policy_identity
from services.trainer.online.prompts import MatrixPrompts, Prompts, TextPrompts
from services.trainer.policy_folder import kind_of
from services.trainer.policy_model import PolicyNetworks, TrainedPolicy, ValueHead
from services.trainer.settings import TrainerSettings
from services.trainer.time_critic import load_time_critic
from services.trainer.tokenizer import load_tokenizer
from services.trainer.value_critic import load_critic
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.adapter import base_identity
from sparsesmith.policy.chat import ChatTokenizer
from sparsesmith.policy.checkpoint import load_policy

SEED = 0


@dataclass(frozen=True)
class OpenedPolicy:
    """In float32 on the CPU; on its way to a GPU the frozen part of an adapted model is in bfloat16."""

    networks: TrainedPolicy
    prompts: Prompts
    vocabulary: int
    """Token ids are below."""
    identity: str
    """Of what training starts from: a checkpoint fits no other."""


def open_policy(settings: TrainerSettings, device: str) -> OpenedPolicy:
    """Raises InvalidOption where the folder does not hold what the settings say, or they do not fit it."""
    opening: Callable[[TrainerSettings, str], OpenedPolicy] = {"matrix": _open_matrix, "text": _open_text}[
        kind_of(settings)
    ]
    return opening(settings, device)


def load_networks(folder: Path, value_dir: Path | None = None, taught_critic: bool = False) -> PolicyNetworks:
    """A policy folder's networks in float32 on the CPU, with a critic that begins as the value model of `value_dir`, as
    the folder's own where it is asked for and there, or as nothing. Raises InvalidOption where it does not fit the
    policy."""
    policy = load_policy(folder)
    hidden = int(policy.model.config.hidden_size)
    torch.manual_seed(SEED)
    if value_dir is not None:
        critic: nn.Module = load_critic(value_dir, policy.encoder.kind, load_tokenizer(folder / "tokenizer.json"))
    else:
        critic = (load_time_critic(folder, hidden) if taught_critic else None) or ValueHead(hidden)
    return PolicyNetworks(policy.model, policy.encoder, critic)


def _open_matrix(settings: TrainerSettings, device: str) -> OpenedPolicy:
    folder = settings.policy_dir
    networks = load_networks(folder, settings.value_dir, settings.taught_critic and settings.reward == "milestone")
    prompts = MatrixPrompts(networks.encoder.kind, load_tokenizer(folder / "tokenizer.json"))
    return OpenedPolicy(networks, prompts, networks.model.config.vocab_size, policy_identity(folder))


def _open_text(settings: TrainerSettings, device: str) -> OpenedPolicy:
    folder = settings.policy_dir
    if settings.value_dir is not None:
        raise _not_for_words("value_dir", str(settings.value_dir), "a value model reads an encoder's prompts")
    if not settings.adapter_rank:
        raise _not_for_words("adapter_rank", 0, "adapters are how it is trained", limit="1 or more")
    model = _load_model(folder, torch.bfloat16 if device == "cuda" else torch.float32)
    tokenizer = ChatTokenizer(folder)
    _check_context(settings, model.config)
    vocabulary = int(model.config.vocab_size)
    if tokenizer.num_words > vocabulary:
        raise InvalidOption(
            f"policy_dir {folder}: its tokenizer has ids up to {tokenizer.num_words - 1}, its model knows those below "
            f"{vocabulary}",
            field="policy_dir",
            value=tokenizer.num_words,
            limit=vocabulary,
        )
    torch.manual_seed(SEED)
    options = AdapterOptions(**{field.name: getattr(settings, field.name) for field in fields(AdapterOptions)})
    base = base_identity(folder)
    networks = AdaptedModel(model, base, options, ValueHead(int(model.config.hidden_size)))
    check_output_layer(networks)
    shape = f"{base} rank {options.adapter_rank} scale {options.adapter_scale}"
    return OpenedPolicy(networks, TextPrompts(tokenizer), vocabulary, sha256(shape.encode()).hexdigest())


def _load_model(folder: Path, dtype: torch.dtype) -> Any:
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    except (ValueError, OSError) as error:  # What transformers raises for folders that it cannot read.
        raise InvalidOption(f"policy_dir {folder}: {error}", field="policy_dir", value=str(folder)) from error
    return model.eval()


def _check_context(settings: TrainerSettings, config: Any) -> None:
    positions = int(config.max_position_embeddings)
    if settings.max_text_tokens > positions:
        raise InvalidOption(
            f"max_text_tokens {settings.max_text_tokens}: the context of {settings.policy_dir} has {positions} tokens",
            field="max_text_tokens",
            value=settings.max_text_tokens,
            limit=positions,
        )


def _not_for_words(field: str, value: object, why: str, limit: str = "empty") -> InvalidOption:
    message = f"{field} {value}: of a policy that is asked in words, {why} (limit: {limit})"
    return InvalidOption(message, field=field, value=value, limit=limit)
