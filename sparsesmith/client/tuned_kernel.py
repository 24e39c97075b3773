"""The answer in a user's hands: the report, the program, and `kernel @ x` on the GPU."""

from functools import cached_property
from typing import Any

import scipy.sparse

from sparsesmith.artifacts.launcher import Launcher, library_launcher, program_launcher
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer


class TunedKernel:
    """A tuned kernel bound to one matrix. `kernel @ x` needs CuPy and the GPU; the rest needs neither."""

    def __init__(self, report: KernelReport, matrix: scipy.sparse.csr_matrix) -> None:
        self.report = report
        self._matrix = matrix

    @property
    def program(self) -> str | None:
        """The kernel program; None where the vendor's routine is the answer."""
        match self.report.answer:
            case TunedAnswer(best=best):
                return best.candidate.program
            case LibraryAnswer():
                return None

    @cached_property
    def _launcher(self) -> Launcher:
        if self.program is None:
            return library_launcher(self._matrix, self.report.workload.element_type)
        return program_launcher(self.program, self._matrix, self.report.workload)

    def __matmul__(self, dense: Any) -> Any:
        """A x (spmv, shape [num_cols]) or A B (spmm, shape [num_cols, num_dense_cols]).

        `dense` is a CuPy array, a torch CUDA tensor or a NumPy array; the result is of the same kind.
        Raises Unavailable where there is no CuPy or GPU, InvalidInput for a wrong shape.
        """
        return self._launcher(dense)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        """New values in the same pattern; the kernel and its format stay. Raises InvalidMatrix for another pattern."""
        self._launcher.update_values(matrix)
        self._matrix = matrix
