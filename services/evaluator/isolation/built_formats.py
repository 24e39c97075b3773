"""Formats built for one workload, shared by all programs that ask for the same one."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from services.evaluator.cores import num_cores
from services.evaluator.device import BuiltMatrix
from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import EMPTY_LAYOUT, Format, Layout, Parameters
from sparsesmith.formats.values.compressed import Compressed, build_layout, storage_name
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram

MAX_CACHED_BYTES = 4 * 2**30
"""Host memory for formats built for one workload; the least recently used go first."""

MIN_NNZ_AHEAD = 100_000
"""Formats of smaller matrices are built in less time than threads take to start."""

Builder = Callable[[str, Format, Parameters], Layout | None]
"""By key, format and parameters; None where it does not build that."""


@dataclass(frozen=True)
class Elsewhere:
    """A device that builds formats, bit for bit as this host does."""

    build: Builder
    always: bool
    """Else for kernels that are wanted at once alone: of all others the conversion's time is to be the host's."""


class BuiltMatrices:
    """Built when first asked for, or ahead on all cores. A task has nothing to build: its layout is empty."""

    def __init__(
        self, problem: Problem, *, max_bytes: int = MAX_CACHED_BYTES, elsewhere: Elsewhere | None = None
    ) -> None:
        """`elsewhere`: what is asked first; None: this host builds."""
        self._problem = problem
        self._elsewhere = elsewhere
        self._max_bytes = max_bytes
        self._element_bytes = ELEMENTS[problem.element_type].num_bytes
        self._matrices: OrderedDict[str, BuiltMatrix] = OrderedDict()
        self._at_once: BuiltMatrix | None = None
        """What was built elsewhere for a kernel that was wanted at once."""

    def get(self, program: KernelProgram) -> BuiltMatrix:
        """The program's format. Raises InvalidProgram where the pattern does not fit it."""
        key = _key(program)
        if key in self._matrices:
            return self._keep(self._matrices[key])
        elsewhere = self._elsewhere is not None and self._elsewhere.always
        return self._keep((elsewhere and self._built_elsewhere(key, program)) or self._build(key, program))

    def get_at_once(self, program: KernelProgram) -> BuiltMatrix:
        """As `get`, built where that takes least; what a device built for it is nobody else's."""
        key = _key(program)
        if key in self._matrices:
            return self.get(program)
        if self._at_once is None or self._at_once.key != key:
            self._at_once = self._built_elsewhere(key, program)
        return self._at_once or self.get(program)

    def build_ahead(self, programs: Iterable[KernelProgram], limit_s: float) -> None:
        """Builds what programs will ask for on all cores, until the time is over or half of the memory is taken.

        To be called while nothing is timed. Formats that the pattern does not fit are left to `get`.
        """
        if self._problem.nnz < MIN_NNZ_AHEAD:
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

    def _built_or_none(self, key: str, program: KernelProgram) -> BuiltMatrix | None:
        try:
            return self._build(key, program)
        except InvalidProgram:
            return None

    def _built_elsewhere(self, key: str, program: KernelProgram) -> BuiltMatrix | None:
        if self._elsewhere is None or self._problem.matrix is None or isinstance(program.format, Compressed):
            return None
        started = time.perf_counter()
        layout = self._elsewhere.build(key, program.format, program.parameters)
        if layout is None:
            return None
        conversion_ms = (time.perf_counter() - started) * 1e3
        return BuiltMatrix(key, layout, layout.num_bytes(self._element_bytes), conversion_ms, built_on="device")

    def _build(self, key: str, program: KernelProgram) -> BuiltMatrix:
        problem = self._problem
        if problem.matrix is None:
            return BuiltMatrix(key, EMPTY_LAYOUT, 0, 0.0)
        # The thread's own time: other threads build beside it, a user's conversion runs alone.
        started = time.thread_time()
        layout = build_layout(program.format, program.parameters, problem.matrix, problem.values)
        conversion_ms = (time.thread_time() - started) * 1e3 + layout.saved_ms
        return BuiltMatrix(key, layout, layout.num_bytes(self._element_bytes), conversion_ms)

    def _keep(self, matrix: BuiltMatrix) -> BuiltMatrix:
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
