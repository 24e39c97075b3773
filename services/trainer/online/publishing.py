"""New weights for the generator: a file or a folder in the exchange folder, then the words that announce it."""

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.trainer.durable import moved, removed
from services.trainer.policy_model import TrainedPolicy
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.message import Digest, PolicyVersion
from sparsesmith_proto.policy import PolicyAnnouncement

log = logging.getLogger(__name__)

_NAME = re.compile(r"policy-(\d+)(?:\.safetensors)?")


@dataclass(frozen=True)
class Edition:
    """What an announcement says beside the file."""

    version: PolicyVersion
    step: int
    metrics: Mapping[str, float]
    created_at: str


class Publisher:
    """Writes weights and announces them, versions rising. Raises Unavailable without Redis, OSError without room."""

    def __init__(self, exchange_dir: Path, channel: PolicyChannel, keep: int) -> None:
        """`keep`: how many of the newest files stay; at least two, as an engine may be loading the one before."""
        self._folder = exchange_dir
        self._channel = channel
        self._keep = max(2, keep)
        exchange_dir.mkdir(parents=True, exist_ok=True)

    def publish(self, networks: TrainedPolicy, edition: Edition) -> PolicyAnnouncement:
        """The weights as they are, rounded to bfloat16, under the edition's version."""
        path = self._folder / networks.published_name(edition.version)
        announcement = _announcement(edition, path, networks.publish(path, edition.version))
        if not self._channel.announce(announcement):
            log.warning("a version as new as %d was announced by another trainer", edition.version)
        self._prune()
        return announcement

    def settle(self, networks: TrainedPolicy, edition: Edition) -> PolicyVersion:
        """Make the newest announced weights be these, after a restart; the version under which they are known.

        That is the edition's where it was announced, or can be now; else the next that is free (the announced weights
        come from a checkpoint that is lost, or from another policy). Version 0, the shipped policy, needs no file.
        """
        latest = self._channel.latest()
        if latest is None and edition.version == 0:
            return 0
        if latest is None or latest.version < edition.version:
            return self.publish(networks, edition).version
        if latest.version == edition.version and self._is_file_of(networks, latest):
            return latest.version
        free = Edition(latest.version + 1, edition.step, edition.metrics, edition.created_at)
        log.warning("version %d was announced with other weights: ours become %d", latest.version, free.version)
        return self.publish(networks, free).version

    def _is_file_of(self, networks: TrainedPolicy, announced: PolicyAnnouncement) -> bool:
        """Whether these weights are the announced ones; if so, their file is there and whole afterwards."""
        name = networks.published_name(announced.version)
        candidate = self._folder / f"candidate-{name}"
        is_same = networks.publish(candidate, announced.version) == announced.sha256 and announced.weights == name
        if is_same:
            moved(candidate, self._folder / name)
        else:
            removed(candidate)
        return is_same

    def weights_of(self, version: PolicyVersion) -> Path | None:
        """The published file or folder of a version; None where it is gone."""
        return self._published().get(version)

    def _prune(self) -> None:
        """What serves stays, and the newest that were not turned down: an operator may go back to them."""
        standing = self._channel.standing()
        versions = self._published()
        wanted = sorted(version for version in versions if version not in standing.turned_down)
        for version in versions.keys() - {*wanted[-self._keep :], standing.serving_version}:
            removed(versions[version])
        for partial in self._folder.glob("*.part"):
            removed(partial)

    def _published(self) -> dict[PolicyVersion, Path]:
        return {int(named[1]): path for path in self._folder.iterdir() if (named := _NAME.fullmatch(path.name))}


def _announcement(edition: Edition, path: Path, digest: Digest) -> PolicyAnnouncement:
    return PolicyAnnouncement(
        version=edition.version,
        weights=path.name,
        sha256=digest,
        step=edition.step,
        metrics={name: value for name, value in edition.metrics.items() if math.isfinite(value)},
        created_at=edition.created_at,
    )
