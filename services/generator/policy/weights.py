"""Checks of published weights, before the engine is paused for them: a bad file must leave the old weights serving."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from sparsesmith.policy.description import ENCODER_PREFIX
from sparsesmith.prompts.header import FIRST_HEADER_SIZES, HEADER_SIZES
from sparsesmith_proto.policy import PolicyAnnouncement

Shape = tuple[int, ...]
TIED_HEAD = "lm_head.weight"
HEADER_TABLE = f"{ENCODER_PREFIX}header.weight"


class RefusedWeights(ValueError):
    """The announced file is not what it should be."""


def weights_path(folder: Path, announcement: PolicyAnnouncement) -> Path:
    """The announced file. Raises RefusedWeights for a name that leads out of the folder."""
    if Path(announcement.weights).name != announcement.weights:
        raise RefusedWeights(f"{announcement.weights!r} is not a plain file name")
    return folder / announcement.weights


def check_weights(path: Path, announcement: PolicyAnnouncement, expected: Mapping[str, Shape]) -> None:
    """Blocking. Raises RefusedWeights: unreadable, another digest; missing, unknown, misshapen, non-finite tensors."""
    try:
        digest = _sha256(path)
        if digest != announcement.sha256:
            raise RefusedWeights(f"{path.name} has SHA-256 {digest}, announced was {announcement.sha256}")
        _compare(tensor_shapes([path]), expected)
        check_finite(path)
    except (OSError, SafetensorError) as error:
        raise RefusedWeights(f"{path.name} cannot be read: {error}") from error


def tensor_shapes(files: Iterable[Path], prefix: str = "") -> dict[str, Shape]:
    """Name -> shape of every tensor of these safetensors files, from their headers alone."""
    shapes: dict[str, Shape] = {}
    for file in files:
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                shapes[prefix + name] = tuple(tensors.get_slice(name).get_shape())
    return _with_room(shapes)


def _with_room(shapes: dict[str, Shape]) -> dict[str, Shape]:
    """A table of header embeddings from before ids were reserved is read as one with room (`encoder.with_room`)."""
    table = shapes.get(HEADER_TABLE)
    if table is None or table[0] != sum(FIRST_HEADER_SIZES):
        return shapes
    return shapes | {HEADER_TABLE: (sum(HEADER_SIZES), *table[1:])}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    """A tied output head may be in either file or in neither."""
    for name in sorted((found.keys() ^ expected.keys()) - {TIED_HEAD}):
        raise RefusedWeights(f"{name}: {'unknown tensor' if name in found else 'tensor is missing'}")
    for name in sorted(found.keys() & expected.keys()):
        if found[name] != expected[name]:
            raise RefusedWeights(f"{name} has shape {list(found[name])}, the policy's is {list(expected[name])}")


def check_finite(path: Path) -> None:
    """Raises RefusedWeights."""
    with safe_open(path, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            if not bool(tensors.get_tensor(name).isfinite().all()):
                raise RefusedWeights(f"{name} holds values that are not finite")
