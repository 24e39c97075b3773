"""What the library's routines take of workloads on one GPU: evaluator to evaluator, where several share it.

sparsesmith:routines:DEVICE:WORKLOAD   the first that was told, for an hour
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from sparsesmith.errors import Unavailable
from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.kernel import Baselines, DeviceDescription, Workload

log = logging.getLogger(__name__)

KEPT_S = 3600
_PREFIX = "sparsesmith:routines:"


class RoutineTimes:
    """Of one GPU, under one set of versions. Redis that does not answer is as if nothing were known: each evaluator can
    time for itself."""

    def __init__(self, connection: Redis, gpu: str, device: DeviceDescription) -> None:
        """`gpu`: which one it is, among all of the fleet: its UUID."""
        self._connection = connection
        versions = sorted(device.versions.items())
        self._device = f"{gpu}:{_digest(f'{device.name} {device.architecture} {versions}')}"

    def find(self, workload: Workload) -> Baselines | None:
        """None where nobody has told any lately, or what was told cannot be read."""
        with _or_unknown():
            return self._read(self._connection.get(self._key(workload)))
        return None

    def agreed(self, workload: Workload, baselines: Baselines) -> Baselines:
        """What one that timed at the same time has told; else these, which the others find from now on. So all hold
        kernels against the same times."""
        with _or_unknown():
            text = baselines.model_dump_json()
            before = self._read(self._connection.set(self._key(workload), text, ex=KEPT_S, nx=True, get=True))
            return before or baselines
        return baselines

    def _read(self, text: object) -> Baselines | None:
        return Baselines.model_validate_json(text) if isinstance(text, bytes | str) else None

    def _key(self, workload: Workload) -> str:
        return f"{_PREFIX}{self._device}:{_digest(workload.model_dump_json())}"


@contextmanager
def _or_unknown() -> Iterator[None]:
    """Goes on behind the block, with a word in the log."""
    try:
        with answering():
            yield
    except (Unavailable, ValidationError) as error:
        log.warning("routines that others timed are not known: %s", error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
