"""A kernel that was handed out before the search, in a user's hands."""

from collections.abc import Callable
from typing import Any

import scipy.sparse

from sparsesmith.errors import Conflict
from sparsesmith.operator import Operator, arrays
from sparsesmith.operator.backend import PLAIN, Backend
from sparsesmith.operator.device import Tuned
from sparsesmith.operator.operator import backend_for
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import Finished, InstantKernel, JobStatus, KernelReport, Running


class InstantOperator:
    """A matrix with a kernel that one check was made of. The search goes on behind it: `best` waits for its end,
    `refresh` looks what has become of the kernel."""

    def __init__(
        self,
        job_id: str,
        kernel: InstantKernel,
        matrix: scipy.sparse.csr_matrix,
        ask: Callable[[], JobStatus],
        wait: Callable[[], KernelReport],
    ) -> None:
        """`ask` and `wait`: of the server, for the job's state and for its answer."""
        self.job_id = job_id
        self.kernel = kernel
        self._matrix = matrix
        self._ask = ask
        self._wait = wait
        self._backend: Backend | None = None

    @property
    def program(self) -> str:
        return extract_program(self.kernel.candidate.program)

    def __matmul__(self, dense: Any) -> Any:
        """A x or A X, by the operand's dimensions, as `Operator` computes it. Raises Conflict once it is known that the
        kernel was withdrawn, InvalidInput for what is no such operand."""
        if self.kernel.state == "withdrawn":
            raise Conflict(f"the kernel was withdrawn: {self.kernel.withdrawn_because}", field="kernel")
        x = arrays.operand(dense, self._matrix.shape[1], (1, 2))
        if self._backend is None:
            self._backend = backend_for(x, self._matrix, Tuned(self.kernel.workload, self.program))
        return self._backend.product(x, None, PLAIN, transposed=False)

    def refresh(self) -> InstantKernel:
        """What the full protocol says of the kernel by now."""
        match self._ask().status:
            case Running(instant=InstantKernel() as kernel):
                self.kernel = kernel
            case Finished(report=KernelReport(instant=InstantKernel() as kernel)):
                self.kernel = kernel
        return self.kernel

    def best(self) -> Operator:
        """The matrix with what the search found, once it has ended. Raises what went wrong."""
        return Operator(self._wait(), self._matrix)
