"""What a policy folder holds, by the names of its files: looked at before anything heavy is imported."""

from pathlib import Path
from typing import Literal

from services.trainer.settings import TrainerSettings

MATRIX_FILES = ("config.json", "policy.json", "encoder.safetensors", "tokenizer.json")
"""Of a policy with a matrix encoder, beside its model's weights."""
TEXT_FILES = ("config.json", "tokenizer_config.json")
"""Of one that is asked in words, likewise."""

Kind = Literal["matrix", "text"]


def kind_of(settings: TrainerSettings) -> Kind:
    """As the settings say, or the folder's files."""
    if settings.policy_kind != "auto":
        return settings.policy_kind
    has_encoder = any((settings.policy_dir / name).is_file() for name in ("policy.json", "encoder.safetensors"))
    return "text" if settings.adapter_rank and not has_encoder else "matrix"


def missing_policy(settings: TrainerSettings) -> str | None:
    """Why a folder holds no policy to train, in words; None where it does."""
    folder: Path = settings.policy_dir
    if not folder.is_dir():
        return f"no policy to train: there is no folder {folder}"
    kind = kind_of(settings)
    absent = [name for name in (MATRIX_FILES if kind == "matrix" else TEXT_FILES) if not (folder / name).is_file()]
    if not any(folder.glob("model*.safetensors")):
        absent.append("model*.safetensors")
    if absent:
        words = "" if settings.adapter_rank or kind == "text" else _OF_WORDS
        return f"no policy to train: {folder} has no {', '.join(absent)}{words}"
    return None


_OF_WORDS = "; a language model that is asked in words is trained where SPARSESMITH_ADAPTER_RANK is 1 or more"
