"""Policies with a matrix encoder: the matrix enters the language model as embeddings."""

from collections.abc import Mapping
from pathlib import Path

from services.generator.policy.kind import PromptWriter
from sparsesmith.policy.description import DESCRIPTION_FILE, ENCODER_FILE, ENCODER_PREFIX, load_description


class MatrixPolicy:
    """With policy.json and encoder.safetensors beside the language model; see PolicyKind."""

    weights_beside: Mapping[str, str] = {ENCODER_FILE: ENCODER_PREFIX}

    def fits(self, folder: Path) -> bool:
        return all((folder / name).is_file() for name in (DESCRIPTION_FILE, ENCODER_FILE))

    def name_of(self, folder: Path) -> str:
        return load_description(folder).name

    def prompt_writer(self, folder: Path) -> PromptWriter:
        from services.generator.policy.matrix_prompts import MatrixPrompts  # Reads torch: a server listens without.

        return MatrixPrompts(folder)
