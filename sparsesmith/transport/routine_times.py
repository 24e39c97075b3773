"""What the library's routines take of workloads on one GPU: evaluator to evaluator, where several share it.

sparsesmith:routines:DEVICE:WORKLOAD   the first that was told, for an hour
"""

import hashlib
import logging

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
        try:
            with answering():
                text = self._connection.get(self._key(workload))
            return None if text is None else Baselines.model_validate_json(text)
        except (Unavailable, ValidationError) as error:
            log.warning("routines of others: %s", error)
            return None

    def tell(self, workload: Workload, baselines: Baselines) -> None:
        """What was told before stays, so that all who ask hold kernels against the same times."""
        try:
            with answering():
                self._connection.set(self._key(workload), baselines.model_dump_json(), ex=KEPT_S, nx=True)
        except Unavailable as error:
            log.warning("routines for others: %s", error)

    def _key(self, workload: Workload) -> str:
        return f"{_PREFIX}{self._device}:{_digest(workload.model_dump_json())}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
