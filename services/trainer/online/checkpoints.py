"""The trainer's state on disk: written beside, synced and renamed, so that a kill at any moment leaves a whole one.

A checkpoint's name holds the digest of its bytes; a file that does not match its name (torn, edited) is passed over for
the one before. Not protected against: loss of the disk, and two trainers on one folder (`__main__` locks it).
"""

import hashlib
import io
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from services.trainer.durable import write_durably
from services.trainer.time_critic import CRITIC_FILE

log = logging.getLogger(__name__)

MAX_USED_RECORDS = 8192
"""Ids of the newest records used that a checkpoint remembers: far more than can be unacknowledged at a time."""

_NAME = re.compile(r"checkpoint-(\d{8})-([0-9a-f]{64})\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a restarted trainer goes on from."""

    policy: str
    """Identity of the policy folder that training started from."""
    version: int
    """Policy version that these weights are, or will be, published as."""
    step: int
    """Updates behind these weights."""
    metrics: dict[str, float]
    """Of the last update, for its announcement."""
    created_at: str
    """UTC, ISO 8601."""
    used: tuple[str, ...]
    """Ids of the newest records learned from, oldest first."""
    learner: dict[str, Any]
    """`Learner.state_dict`."""
    given: int | None = None
    """Highest version given to any weights: above `version` where newer ones were turned down. None: `version`."""
    step_scale: float = 1.0
    """Of the policy's steps: smaller once a version was refused."""
    wins: tuple[str, ...] = ()
    """Records of programs that are imitated, as JSON."""
    num_learned: int = 0
    """Of `used`, how many the update that made this checkpoint learned from; 0 where none did."""

    @property
    def learned(self) -> tuple[str, ...]:
        """Ids of the records of the update that made this checkpoint, as far as `used` goes back."""
        return self.used[-self.num_learned :] if self.num_learned else ()

    @property
    def newest(self) -> int:
        """Highest version given to any weights."""
        return self.version if self.given is None else max(self.version, self.given)


class CheckpointFolder:
    """The newest few checkpoints."""

    def __init__(self, folder: Path, keep: int) -> None:
        """At least two are kept: the newest one's version may be refused, and the one before is gone back to."""
        self._folder = folder
        self._keep = max(2, keep)
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, checkpoint: Checkpoint) -> Path:
        """On disk when this returns. Raises OSError where it does not fit."""
        buffer = io.BytesIO()
        torch.save(vars(checkpoint), buffer)
        content = buffer.getbuffer()
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder / f"checkpoint-{checkpoint.newest:08d}-{digest}.pt"
        write_durably(path, content)
        self._prune(path)
        return path

    def newest(self, policy: str) -> Checkpoint | None:
        """The newest whole checkpoint of this policy folder; None where there is none."""
        return next(self._whole(policy), None)

    def of_version(self, policy: str, version: int) -> Checkpoint | None:
        """The newest whole checkpoint whose weights are this version; None where there is none."""
        return next((each for each in self._whole(policy) if each.version == version), None)

    def _whole(self, policy: str) -> Iterator[Checkpoint]:
        for path in self._newest_first():
            checkpoint = _load(path)
            if checkpoint is None:
                log.warning("checkpoint %s is damaged and is passed over", path.name)
            elif checkpoint.policy != policy:
                log.warning("checkpoint %s belongs to another policy folder and is passed over", path.name)
            else:
                yield checkpoint

    def _newest_first(self) -> list[Path]:
        named = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(named, key=lambda path: (path.name[:19], path.stat().st_mtime_ns), reverse=True)

    def _prune(self, written: Path) -> None:
        """Half-written files go, and all but the newest few; the one just written stays whatever its version."""
        others = [path for path in self._newest_first() if path != written]
        for stale in [*others[self._keep - 1 :], *self._folder.glob("*.part")]:
            stale.unlink(missing_ok=True)


def remembered(used: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Ids of used records with new ones at the end, the oldest forgotten."""
    return tuple(dict.fromkeys([*used, *new]))[-MAX_USED_RECORDS:]


def digest_of_records(record_ids: Iterable[str]) -> str:
    """SHA-256 of the ids, one a line, in their order: what tells whose records an update learned from."""
    return hashlib.sha256("".join(f"{each}\n" for each in record_ids).encode()).hexdigest()


def policy_identity(folder: Path) -> str:
    """SHA-256 over a policy folder's weights and configuration: a checkpoint fits no other. Without its critic, which
    a checkpoint may hold or not."""
    sha = hashlib.sha256()
    weights = (path for path in folder.glob("*.safetensors") if path.name != CRITIC_FILE)
    for path in sorted([*weights, folder / "config.json", folder / "policy.json"]):
        with path.open("rb") as file:
            sha.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return sha.hexdigest()


def _load(path: Path) -> Checkpoint | None:
    """None where the bytes are not those that the name promises. Runs no code from the file."""
    content = path.read_bytes()
    named = _NAME.fullmatch(path.name)
    if named is None or hashlib.sha256(content).hexdigest() != named[2]:
        return None
    return Checkpoint(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
