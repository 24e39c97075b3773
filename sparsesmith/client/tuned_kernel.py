"""The answer in a user's hands: the report, the program, and `kernel @ x` on the GPU."""

import warnings
from typing import Any

import scipy.sparse

from sparsesmith.artifacts import ArtifactKind, artifact
from sparsesmith.artifacts.host_launcher import host_launcher
from sparsesmith.artifacts.launcher import Launcher, checked_values, library_launcher, program_launcher
from sparsesmith.client.matrices import SparseMatrix, to_scipy
from sparsesmith.errors import InvalidMatrix, Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer


class TunedKernel:
    """A tuned kernel bound to one matrix. `kernel @ x` runs on the GPU; else SciPy computes it, and warns."""

    def __init__(self, report: KernelReport, matrix: scipy.sparse.csr_matrix) -> None:
        self.report = report
        self._matrix = matrix
        self._launcher: Launcher | None = None

    @property
    def program(self) -> str | None:
        """The kernel program; None where the vendor's routine is the answer."""
        match self.report.answer:
            case TunedAnswer(best=best):
                return extract_program(best.candidate.program)
            case LibraryAnswer():
                return None

    def artifact(self, kind: ArtifactKind) -> bytes:
        """The program (`cu`), C++ header (`hpp`), Python loader (`py`), report (`json`) or all of them (`zip`).

        Raises Conflict for `cu` and `hpp` where the vendor's routine is the answer.
        """
        values = checked_values(self._matrix.data, self.report.workload)
        return artifact(kind, self.report, pattern_from_scipy(self._matrix), values).content

    def __matmul__(self, dense: Any) -> Any:
        """A x (spmv, shape [num_cols]) or A B (spmm, shape [num_cols, num_dense_cols]).

        `dense` is a CuPy array, a torch tensor or a NumPy array, converted to the kernel's element type where it has
        another; the result is of the same kind. Without CuPy or a GPU SciPy computes it, and a RuntimeWarning says so
        once. Raises InvalidInput for a wrong shape, Unavailable where a tensor lies on a GPU that CuPy does not find.
        """
        if self._launcher is None:
            self._launcher = self._new_launcher(dense)
        return self._launcher(dense)

    def update_values(self, matrix: SparseMatrix) -> None:
        """New values in the same pattern; the kernel and its format stay.

        Raises InvalidMatrix for another pattern, and for other values where the kernel was tuned with values="fixed".
        """
        csr = to_scipy(matrix)
        digest = pattern_from_scipy(csr).digest
        if digest != self.report.workload.pattern:
            raise InvalidMatrix(
                "the matrix has another pattern than the kernel was tuned for",
                field="pattern",
                value=digest,
                limit=self.report.workload.pattern,
            )
        if self.program is not None:
            checked_values(csr.data, self.report.workload)
        if self._launcher is not None:
            self._launcher.update_values(csr)
        self._matrix = csr

    def _new_launcher(self, dense: Any) -> Launcher:
        try:
            return self._gpu_launcher()
        except Unavailable as error:
            if getattr(dense, "is_cuda", False):
                raise
            warnings.warn(
                f"{error.message}: SciPy computes the products of this kernel on the CPU instead",
                RuntimeWarning,
                stacklevel=3,
            )
            return host_launcher(self._matrix, self.report.workload)

    def _gpu_launcher(self) -> Launcher:
        program = self.program
        if program is None:
            return library_launcher(self._matrix, self.report.workload)
        return program_launcher(program, self._matrix, self.report.workload)
