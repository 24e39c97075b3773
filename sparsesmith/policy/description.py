"""What a policy folder says of itself; read without torch.

policy.json                 what kind of encoder, which version of the features
encoder.safetensors         the matrix encoder's weights
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsesmith.elements import WIDE_TYPES
from sparsesmith.errors import InvalidOption
from sparsesmith.prompts.arrays import ENCODER_KINDS, FEATURE_VERSIONS, EncoderKind
from sparsesmith_proto.message import ElementType

ENCODER_FILE = "encoder.safetensors"
ENCODER_PREFIX = "encoder."
"""Of the encoder's tensors in a file that holds a whole policy; the language model does not know them."""
DESCRIPTION_FILE = "policy.json"
FIRST_OPERATIONS = ("spmv", "spmm")
"""Of policies that do not say what they were trained on."""


@dataclass(frozen=True)
class PolicyDescription:
    """policy.json."""

    name: str
    encoder: EncoderKind = "structural"
    feature_version: int = 1
    """Of FEATURE_VERSIONS for this encoder."""
    version: int = 0
    """Policy version of these weights."""
    element_types: tuple[ElementType, ...] = WIDE_TYPES
    """What it was trained to write programs for."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Reports of the stages that made them."""
    operations: tuple[str, ...] = FIRST_OPERATIONS
    """Those that it was trained on."""


def load_description(folder: Path) -> PolicyDescription:
    """policy.json. Raises InvalidOption where the folder was made for other features."""
    written = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
    element_types = tuple(written.get("element_types", WIDE_TYPES))
    operations = tuple(written.get("operations", FIRST_OPERATIONS))
    description = PolicyDescription(**{**written, "element_types": element_types, "operations": operations})
    _check_features(folder, description)
    return description


def _check_features(folder: Path, description: PolicyDescription) -> None:
    kind, version = description.encoder, description.feature_version
    if kind not in ENCODER_KINDS:
        known = ", ".join(ENCODER_KINDS)
        raise InvalidOption(
            f"{folder} has an encoder {kind!r} (known: {known})", field="policy_dir", value=kind, limit=known
        )
    expected = FEATURE_VERSIONS[kind]
    if version != expected:
        raise InvalidOption(
            f"{folder} was trained on {kind} features of version {version}, these are of version {expected}",
            field="policy_dir",
            value=version,
            limit=expected,
        )
