"""Formats built for one workload, shared by all programs that ask for the same one."""

import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from services.evaluator.cores import num_cores
from services.evaluator.device import StoredMatrix
from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.values.compressed import build_layout, storage_name
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.message import ElementType

MAX_CACHED_BYTES = 4 * 2**30
"""Host memory for formats built for one workload; the least recently used go first."""

MIN_NNZ_AHEAD = 100_000
"""Formats of smaller matrices are built in less time than threads take to start."""


class StoredMatrices:
    """Built when first asked for, or ahead on all cores."""

    def __init__(
        self,
        pattern: Pattern,
        element_type: ElementType,
        values: FixedValues | None = None,
        *,
        max_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._pattern = pattern
        self._max_bytes = max_bytes
        self._values = values
        self._element_bytes = ELEMENTS[element_type].num_bytes
        self._matrices: OrderedDict[str, StoredMatrix] = OrderedDict()

    def get(self, program: KernelProgram) -> StoredMatrix:
        """The program's format. Raises InvalidProgram where the pattern does not fit it."""
        key = _key(program)
        return self._keep(self._matrices.get(key) or self._build(key, program))

    def build_ahead(self, programs: Iterable[KernelProgram], limit_s: float) -> None:
        """Builds what programs will ask for on all cores, until the time is over or half of the memory is taken.

        To be called while nothing is timed. Formats that the pattern does not fit are left to `get`.
        """
        if self._pattern.nnz < MIN_NNZ_AHEAD:
            return
        missing = {_key(program): program for program in programs if _key(program) not in self._matrices}
        remaining = iter(missing.items())
        num_threads = num_cores()
        end = time.monotonic() + limit_s
        with ThreadPoolExecutor(num_threads) as threads:
            while time.monotonic() < end and self._cached_bytes() < self._max_bytes / 2:
                wave = list(islice(remaining, num_threads))
                if not wave:
                    return
                for matrix in threads.map(lambda item: self._built_or_none(*item), wave):
                    if matrix is not None:
                        self._keep(matrix)

    @property
    def held(self) -> tuple[str, ...]:
        """Keys of what need not be built, the least recently used first."""
        return tuple(self._matrices)

    def _built_or_none(self, key: str, program: KernelProgram) -> StoredMatrix | None:
        try:
            return self._build(key, program)
        except InvalidProgram:
            return None

    def _build(self, key: str, program: KernelProgram) -> StoredMatrix:
        # The thread's own time: other threads build beside it, a user's conversion runs alone.
        started = time.thread_time()
        layout = build_layout(program.format, program.parameters, self._pattern, self._values)
        conversion_ms = (time.thread_time() - started) * 1e3
        return StoredMatrix(key, layout, layout.num_bytes(self._element_bytes), conversion_ms)

    def _keep(self, matrix: StoredMatrix) -> StoredMatrix:
        self._matrices[matrix.key] = matrix
        self._matrices.move_to_end(matrix.key)
        while len(self._matrices) > 1 and self._cached_bytes() > self._max_bytes:
            self._matrices.popitem(last=False)
        return matrix

    def _cached_bytes(self) -> int:
        return sum(matrix.format_bytes for matrix in self._matrices.values())


def _key(program: KernelProgram) -> str:
    parameters = ",".join(f"{name}={value}" for name, value in sorted(program.parameters.items()))
    return f"{storage_name(program.format)} {parameters}"
