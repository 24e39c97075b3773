"""`Operator`: A and A^T times vectors and matrices, as SciPy's solvers, CuPy and torch call it."""

import os
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import scipy.sparse

from sparsesmith.artifacts import ArtifactKind, artifact
from sparsesmith.artifacts.launcher import checked_values, current_architecture, num_multiprocessors, values_of
from sparsesmith.artifacts.running import running_program, running_routine
from sparsesmith.cuda.nvrtc import NvrtcNotFound, compile_cubin
from sparsesmith.elements import dtype_of
from sparsesmith.errors import Conflict, InvalidInput, InvalidMatrix, Unavailable
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.operator import arrays
from sparsesmith.operator.backend import PLAIN, Backend, BoundProduct, Scale
from sparsesmith.operator.device import DeviceBackend, Tuned
from sparsesmith.operator.directions import (
    direction_of,
    is_of_stored,
    plain_program,
    transposed_matrix,
    transposed_workload,
)
from sparsesmith.operator.file import Sections, packed_sections, refused_file
from sparsesmith.operator.host import HostBackend, host_array
from sparsesmith.operator.image import Direction, as_bytes, support_cubin
from sparsesmith.operator.matrices import SparseMatrix, to_scipy
from sparsesmith.operator.parts import NO_PARTS, Parts
from sparsesmith.operator.registry import new_handle
from sparsesmith.operator.saved import Saved, read_saved, write_saved
from sparsesmith.program.program import parse_program
from sparsesmith_proto.api import KernelReport
from sparsesmith_proto.message import Architecture

PRODUCTS = ("spmv", "spmm")
_PACKAGE = str(Path(__file__).parents[1])
_MOST_KNOWN = 8
"""Of each direction and number of dimensions."""

Known = tuple[arrays.Likeness, arrays.Likeness, BoundProduct]
"""Which x and which out, and their product."""
_MOST_MADE = 64
"""Likenesses of tensors whose products are held; all are let go of when there are more."""
Made = tuple[bool, tuple[int, ...], Any, Any, Any]
"""Whether the product is one with A^T; shape, type, device and layout of x."""
Asked = tuple[bool, tuple[int, ...]]
"""Whether the product is one with A^T, and of how many dimensions x may be."""
_NOTHING_KNOWN: Mapping[Asked, tuple[Known, ...]] = {
    (transposed, dimensions): () for transposed in (False, True) for dimensions in ((1,), (2,), (1, 2))
}
_ONE, _ZERO = 1.0, 0.0
"""Those that nobody gave: told by being the same objects, then."""


class Operator:
    """A matrix with its tuned kernel: products with A and A^T, for SciPy's solvers as for CuPy's and torch's arrays.

    Products run on the GPU that is current at the first one; without CuPy or a GPU SciPy computes them, and a
    RuntimeWarning says so once. An operand is a NumPy, CuPy or torch array of real numbers, converted to the operator's
    `dtype` where it has another; the result is of the same kind and lies where the operand does. With `out` nothing is
    converted or allocated: both must have the operator's type and be contiguous.

        y = op @ x                               # op.matvec(x); of two dimensions, op.matmat(x)
        op.matvec(x, out=y, alpha=2, beta=-1)    # y = 2 A x - y
        op.T @ y                                 # op.rmatvec(y)

    Any number of threads may use one operator, on a GPU each on a stream of its own; the kernel's scratch memory,
    where it has any (`has_scratch`), is one: then products must follow one another. `close` waits for nobody.
    """

    __array_ufunc__ = None  # `numpy_array @ op` is op's to compute.

    def __init__(
        self,
        report: KernelReport,
        matrix: scipy.sparse.csr_matrix,
        parts: Parts = NO_PARTS,
        transposed: KernelReport | None = None,
    ) -> None:
        """The matrix in CSR, columns ascending; as `tune` and `load` do it. `transposed`: the report of A^T where it
        was tuned as well. Raises InvalidMatrix where the matrix has another shape than a report's."""
        if transposed is not None:
            of_stored = is_of_stored(transposed.workload)
            found, needed = (transposed.num_rows, transposed.num_cols), matrix.shape[:: 1 if of_stored else -1]
            if found != needed:
                raise InvalidMatrix(
                    f"transposed is of shape {found}, the matrix of {matrix.shape}",
                    field="transposed",
                    value=found,
                    limit=needed,
                )
        if matrix.shape != (report.num_rows, report.num_cols):
            raise InvalidMatrix(
                f"the matrix has shape {matrix.shape}, the kernel was tuned for {(report.num_rows, report.num_cols)}",
                field="matrix",
                value=matrix.shape,
                limit=(report.num_rows, report.num_cols),
            )
        operation = operation_named(report.workload.operation)
        if len(operands_with_role(operation, "input")) != 1:
            reason = (
                f"{operation.name} is no product of the matrix with one operand: its answer is a report and a program"
            )
            raise InvalidInput(f"report: {reason}", field="report", value=operation.name, limit=", ".join(PRODUCTS))
        self._bound = Bound(report, matrix, parts, transposed)
        self._is_transposed = False

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self._bound.matrix.shape
        return (cols, rows) if self._is_transposed else (rows, cols)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of values, operands and results."""
        return dtype_of(self._bound.report.workload.element_type)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def nnz(self) -> int:
        """Stored nonzeros."""
        return int(self._bound.matrix.nnz)

    @property
    def T(self) -> "Operator":
        """A^T: a view that shares everything, new values included."""
        view = object.__new__(Operator)
        view._bound, view._is_transposed = self._bound, not self._is_transposed
        return view

    @property
    def H(self) -> "Operator":
        """A^T: all numbers are real."""
        return self.T

    @property
    def report(self) -> KernelReport:
        """What was measured: the answer, the library's routines, after how many products the tuning is repaid; for a
        view whose direction was tuned, of that."""
        both = self._bound
        return both.transposed if self._is_transposed and both.transposed is not None else both.report

    @property
    def program(self) -> str | None:
        """The kernel program that runs: the report's; where the vendor's routine is the answer, the closest one if it
        is faster than what can be called; None where a routine is called."""
        return running_program(self.report)

    @property
    def is_transposed(self) -> bool:
        """Whether it is a view A^T of the operator that was tuned."""
        return self._is_transposed

    @property
    def handle(self) -> int:
        """A number that stands for it and its views in this process, for `sparsesmith.torch`."""
        return self._bound.handle

    @property
    def has_scratch(self) -> bool:
        """Whether the kernel keeps intermediate results in memory of its own: one product at a time, then."""
        return self._bound.has_scratch

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU that it holds by now, for both directions."""
        return self._bound.device_bytes

    def matvec(self, x: Any, *, out: Any = None, alpha: float = _ONE, beta: float = _ZERO) -> Any:
        """alpha A x + beta out; x of shape [cols] or [cols, 1], the result of [rows] or [rows, 1].

        `out` may hold anything where beta is 0. Raises InvalidInput, naming the argument, for what is no such operand;
        Conflict after `close`; Unavailable where a tensor lies on a GPU that CuPy does not find.
        """
        return self._product(x, out, alpha, beta, adjoint=False, dimensions=(1,))

    def rmatvec(self, x: Any, *, out: Any = None, alpha: float = _ONE, beta: float = _ZERO) -> Any:
        """As matvec with A^T."""
        return self._product(x, out, alpha, beta, adjoint=True, dimensions=(1,))

    def matmat(self, x: Any, *, out: Any = None, alpha: float = _ONE, beta: float = _ZERO) -> Any:
        """alpha A X + beta out; X of shape [cols, k], row-major, the result of [rows, k].

        A kernel of one vector runs k times; one tuned for `num_dense_cols` columns once for so many.
        """
        return self._product(x, out, alpha, beta, adjoint=False, dimensions=(2,))

    def rmatmat(self, x: Any, *, out: Any = None, alpha: float = _ONE, beta: float = _ZERO) -> Any:
        """As matmat with A^T."""
        return self._product(x, out, alpha, beta, adjoint=True, dimensions=(2,))

    def __matmul__(self, dense: Any) -> Any:
        """A x or A X, by the operand's dimensions."""
        return self._product(dense, None, 1, 0, adjoint=False, dimensions=(1, 2))

    def __rmatmul__(self, dense: Any) -> Any:
        """x A: A^T x, or (A^T X^T)^T."""
        dense = arrays.real_array(dense, "x")
        if dense.ndim != 2:
            return self._product(dense, None, 1, 0, adjoint=True, dimensions=(1,))
        return self._product(dense.T, None, 1, 0, adjoint=True, dimensions=(2,)).T

    def update_values(self, values: Any) -> None:
        """New values in the same pattern; kernel and format stay, and what a captured graph reads is changed in place.

        `values`: an array of any kind, rows in order and columns ascending in each (the order of `to_scipy().data`; of
        a view that of A^T), or a sparse matrix of the same pattern. Between products on one stream; on the GPU for
        arrays that lie there.
        Raises InvalidInput for an array of another length or type, InvalidMatrix for another pattern, and for other
        values where the kernel was tuned with values="fixed".
        """
        self._bound.update_values(values, of_view=self._is_transposed)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """The matrix with its present values, in CSR; for a view its transpose."""
        matrix = self._bound.present_matrix().copy()
        return matrix.T.tocsr() if self._is_transposed else matrix

    def artifact(self, kind: ArtifactKind) -> bytes:
        """The program (`cu`), C++ header (`hpp`), Python loader (`py`), report (`json`) or all of them (`zip`).

        Raises Conflict for `cu` and `hpp` where the vendor's routine is the answer.
        """
        matrix = self._bound.present_matrix()
        if self.report is self._bound.transposed and not is_of_stored(self.report.workload):
            matrix, _ = transposed_matrix(matrix)
        values = checked_values(matrix.data, self.report.workload)
        return artifact(kind, self.report, pattern_from_scipy(matrix), values).content

    def save(self, path: str | os.PathLike[str], *, transposed: bool = False) -> None:
        """One file that `sparsesmith.load` and the C library read: report, program, matrix, storage format, machine
        code for the report's GPU where a compiler (NVRTC) is found; a RuntimeWarning where none is.

        `transposed`: with A^T for the C library, which makes no kernel itself; always where A^T was tuned. Raises
        OSError, Conflict.
        """
        bound = self._bound
        matrix, parts = bound.present_matrix(), bound.complete_parts()
        write_saved(
            Path(path),
            Saved(bound.report, matrix, parts, self._is_transposed, bound.transposed),
            bound.native_sections(matrix, parts, transposed=transposed or bound.transposed is not None),
        )

    def close(self) -> None:
        """Gives memory back, of the GPU too. Whatever is asked of it or of a view afterwards is a Conflict."""
        self._bound.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        rows, cols = self.shape
        workload = self.report.workload
        return f"<Operator {rows} x {cols}, {self.nnz} nonzeros, {workload.element_type}, {workload.operation}>"

    def _product(
        self, x: Any, out: Any, alpha: float, beta: float, *, adjoint: bool, dimensions: tuple[int, ...]
    ) -> Any:
        bound, transposed = self._bound, adjoint != self._is_transposed
        if out is not None:
            for is_x, is_out, product in bound.known[transposed, dimensions]:
                if is_x(x) and is_out(out):
                    return product(x, out, PLAIN if alpha is _ONE and beta is _ZERO else _scale(alpha, beta))
        num_results, num_given = self.shape[::-1] if adjoint else self.shape
        x = arrays.operand(x, num_given, dimensions)
        scale = _scale(alpha, beta)
        requires_gradient = bool(getattr(x, "requires_grad", False))
        follows = requires_gradient and autograd_follows()
        if follows and out is None:
            return self._followed(x, scale, adjoint=adjoint)
        if follows:
            raise arrays.refused("out", "cannot have the gradient that x requires", "a gradient of x", "no out=")
        if out is not None:
            arrays.check_exact(x, "x", bound.element_type)
            arrays.check_out(out, x, (num_results, *x.shape[1:]), bound.element_type)
        elif scale.beta:
            raise arrays.refused("beta", f"is {scale.beta}, and there is no out= for it to scale", scale.beta, 0)
        backend = bound.backend(x)
        if out is None or requires_gradient:
            return backend.product(x, out, scale, transposed=transposed)
        product = backend.bound(x, out, transposed=transposed)
        bound.remember((transposed, dimensions), (arrays.likeness(x), arrays.likeness(out), product))
        return product(x, out, scale)

    def _followed(self, x: Any, scale: Scale, *, adjoint: bool) -> Any:
        """The product of a tensor that autograd follows, in the operator's type."""
        from sparsesmith.operator.tensors import product

        if scale.beta:
            raise arrays.refused("beta", f"is {scale.beta}, and there is no out= for it to scale", scale.beta, 0)
        found = product(self.T if adjoint else self, arrays.of_type(x, self._bound.element_type))
        return found if scale.is_plain else found * scale.alpha


class Bound:
    """What an operator and its views share."""

    def __init__(
        self, report: KernelReport, matrix: scipy.sparse.csr_matrix, parts: Parts, transposed: KernelReport | None
    ) -> None:
        self.report = report
        self.transposed = transposed
        self.element_type = report.workload.element_type
        self.matrix = matrix
        """Its values are those that it was made with, until `present_matrix` is asked for."""
        self.known = dict(_NOTHING_KNOWN)
        """Products whose arguments were checked, the newest first; whether of A^T, and of which dimensions."""
        self.extents = (*matrix.shape, int(matrix.nnz))
        """Rows, columns, nonzeros."""
        self._made: dict[Made, tuple[tuple[int, ...], BoundProduct]] = {}
        """Results' shapes and products of tensors like those that were right before."""
        self._parts = parts
        self._backend: Backend | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self.handle = new_handle(self)

    @property
    def program(self) -> str | None:
        return running_program(self.report)

    @property
    def has_fixed_values(self) -> bool:
        """Whether the kernel is right for the values that it was tuned with only."""
        return self.program is not None and self.report.workload.values is not None

    @property
    def has_scratch(self) -> bool:
        if self.program is None:  # A routine's workspace is one.
            return self.report.workload.pattern is not None
        parsed = parse_program(self.program, self.report.workload.operation, self.element_type)
        return any(argument.role == "scratch" for argument in parsed.signature)

    @property
    def device_bytes(self) -> int:
        return 0 if self._backend is None else self._backend.device_bytes

    def backend(self, x: Any) -> Backend:
        """Made at the first product. Raises Conflict after `close`."""
        self._check_open()
        with self._lock:
            if self._backend is None:
                self._backend = self._new_backend(x)
            return self._backend

    def remember(
        self, asked: Asked, found: tuple[arrays.Likeness | None, arrays.Likeness | None, BoundProduct]
    ) -> None:
        """For arguments like these, once they were found right."""
        is_x, is_out, product = found
        if is_x is None or is_out is None:
            return
        with self._lock:
            if not self._is_closed:
                self.known[asked] = ((is_x, is_out, product), *self.known[asked])[:_MOST_KNOWN]

    def tensor_product(self, x: Any, values: Any, *, transposed: bool) -> Any:
        """A x or A^T x, with these values where they are given. Raises InvalidInput."""
        if values is None and (made := self._made.get(_made_key(x, transposed))) is not None:
            shape, product = made
            return product(x.contiguous(), x.new_empty(shape), PLAIN)
        rows, cols, nnz = self.extents
        arrays.check_shape(x, "x", [(rows if transposed else cols, *x.shape[1:2])])
        arrays.check_type(x, "x", self.element_type)
        if values is None:
            return self._product_of_tensor(x, transposed=transposed)
        arrays.check_shape(values, "values", [(nnz,)])
        arrays.check_type(values, "values", self.element_type)
        arrays.check_place(values, "values", x)
        if arrays.place_of(x) == "host":
            self._check_open()
            matrix = _with_values(self.matrix, host_array(values, self.element_type))
            return HostBackend(matrix, self.element_type).product(x, None, PLAIN, transposed=transposed)
        self.backend(x)
        self.update_values(values)
        return self.tensor_product(x, None, transposed=transposed)

    def _product_of_tensor(self, x: Any, *, transposed: bool) -> Any:
        """Into memory that torch allocates: a graph that torch captures owns its results."""
        shape = (self.extents[1 if transposed else 0], *x.shape[1:])
        given, out = x.contiguous(), x.new_empty(shape)
        product = self.backend(x).bound(given, out, transposed=transposed)
        with self._lock:
            if not self._is_closed:
                if len(self._made) >= _MOST_MADE:
                    self._made = {}
                self._made[_made_key(x, transposed)] = shape, product
        return product(given, out, PLAIN)

    def update_values(self, values: Any, *, of_view: bool = False) -> None:
        """`of_view`: they are those of A^T."""
        self._check_open()
        ordered = self._ordered(values, of_view)
        if self.has_fixed_values:
            checked_values(host_array(ordered, self.element_type), self.report.workload)
        with self._lock:
            if self._backend is None:
                self.matrix = _with_values(self.matrix, host_array(ordered, self.element_type).copy())
            else:
                self._backend.set_values(ordered)

    def present_matrix(self) -> scipy.sparse.csr_matrix:
        """With the present values, in the element type."""
        self._check_open()
        with self._lock:
            if self._backend is None or self.has_fixed_values:
                return _with_values(self.matrix, values_of(self.matrix, self.element_type))
            return _with_values(self.matrix, self._backend.values())

    def complete_parts(self) -> Parts:
        """With all that can be made here."""
        if self.program is None:
            return NO_PARTS
        parsed = parse_program(self.program, self.report.workload.operation, self.element_type)
        layout = self._parts.layout
        if layout is None:
            values = checked_values(self.matrix.data, self.report.workload)
            layout = build_layout(parsed.format, parsed.parameters, pattern_from_scipy(self.matrix), values)
        architecture = self._parts.architecture or self.report.device.architecture
        cubin = self._parts.cubin
        if not cubin:
            try:
                cubin = compile_cubin(parsed.source, architecture)
            except (NvrtcNotFound, OSError) as error:
                _warn(f"saved without machine code, which will be compiled where it is loaded: {error}")
        return Parts(layout, cubin, architecture if cubin else None)

    def native_sections(self, matrix: scipy.sparse.csr_matrix, parts: Parts, *, transposed: bool) -> Sections:
        """What the C library needs beside; nothing where there is no program or no compiler."""
        if self.program is None or not parts.cubin or parts.architecture is None:
            return {}
        return self._sections(matrix, parts, (parts.architecture, self.report.device.num_sms), transposed)

    def native_image(self) -> bytes:
        """For the C library on the current GPU, both directions with the present values; plain programs where nothing
        was tuned. Raises Unavailable without CuPy, a GPU or a compiler."""
        architecture, matrix = current_architecture(), self.present_matrix()
        if architecture is None:
            raise Unavailable("there is no GPU")
        parts = self._parts if self._parts.architecture == architecture else replace(self._parts, cubin=b"")
        try:
            sections = self._sections(matrix, parts, (architecture, num_multiprocessors()), True)
        except NvrtcNotFound as error:
            raise Unavailable(f"compiling for the GPU: {error}") from error
        return packed_sections({**sections, "values": as_bytes(matrix.data)})

    def _sections(
        self, matrix: scipy.sparse.csr_matrix, parts: Parts, gpu: tuple[Architecture, int], transposed: bool
    ) -> Sections:
        workload = self.report.workload
        forward = direction_of(matrix, workload, self.program or plain_program(workload), parts)
        sections = dict(forward.sections(*gpu))
        if transposed:
            backward = self._backward_direction(matrix)
            sections |= backward.sections(*gpu, "T.")
        return {**sections, "support": support_cubin(self.element_type, gpu[0])}

    def _backward_direction(self, matrix: scipy.sparse.csr_matrix) -> Direction:
        """What A^T is multiplied with: what was found for it, from A as it is stored or from a copy of A^T, else a
        plain program."""
        tuned = self._tuned_backward()
        if tuned is not None and tuned.program is not None and is_of_stored(tuned.workload):
            return direction_of(matrix, tuned.workload, tuned.program)
        other, order = transposed_matrix(matrix)
        if tuned is None or is_of_stored(tuned.workload):
            tuned = Tuned(transposed_workload(other, self.report.workload), None)
        text = tuned.program or plain_program(tuned.workload)
        return direction_of(other, tuned.workload, text, order=order)

    def _tuned_backward(self) -> Tuned | None:
        report = self.transposed
        return None if report is None else Tuned(report.workload, running_program(report), running_routine(report))

    def close(self) -> None:
        with self._lock:
            self._is_closed, self._backend, self._parts = True, None, NO_PARTS
            self.known.update(_NOTHING_KNOWN)
            self._made = {}

    def _ordered(self, values: Any, of_view: bool) -> Any:
        """As an array of all nonzeros in order. Raises InvalidInput."""
        if scipy.sparse.issparse(values) or _is_sparse_elsewhere(values):
            return self._of_matrix(values, of_view)
        ordered = arrays.real_array(values, "values")
        arrays.check_shape(ordered, "values", [(int(self.matrix.nnz),)])
        return arrays.put_at(ordered, transposed_matrix(self.matrix)[1]) if of_view else ordered

    def _of_matrix(self, given: SparseMatrix, of_view: bool) -> Any:
        csr = to_scipy(given)
        csr = transposed_matrix(csr)[0] if of_view else csr
        digest = pattern_from_scipy(csr).digest
        if digest != self.report.workload.pattern:
            raise InvalidMatrix(
                "the matrix has another pattern than the kernel was tuned for",
                field="pattern",
                value=digest,
                limit=self.report.workload.pattern,
            )
        return csr.data

    def _new_backend(self, x: Any) -> Backend:
        tuned = Tuned(self.report.workload, self.program, running_routine(self.report))
        return backend_for(x, self.matrix, tuned, self._parts, self._tuned_backward())

    def _check_open(self) -> None:
        if self._is_closed:
            raise Conflict("operator: it has been closed", field="operator", value="closed")


def backend_for(
    x: Any, matrix: scipy.sparse.csr_matrix, tuned: Tuned, parts: Parts = NO_PARTS, backward: Tuned | None = None
) -> Backend:
    """On the current GPU; without CuPy or a GPU SciPy's, which a RuntimeWarning says. Raises Unavailable where x lies
    on a GPU all the same, and for other operations than products; Conflict in a capture."""
    try:
        return DeviceBackend(matrix, tuned, parts, backward, x)
    except Unavailable as error:
        if getattr(x, "is_cuda", False):
            raise
        operation = tuned.workload.operation
        if operation not in PRODUCTS:
            reason = f"without CuPy and a GPU only {' and '.join(PRODUCTS)} are computed"
            raise Unavailable(reason, field="operation", value=operation) from error
        _warn(f"{error.message}: SciPy computes the products of this kernel on the CPU instead")
        return HostBackend(matrix, tuned.workload.element_type)


def load(path: str | os.PathLike[str], *, recompile: bool = False) -> Operator:
    """An operator that was saved. Nothing is searched for, built or compiled, and no server is asked.

    Where there is a GPU of another architecture than the machine code's, InvalidInput names both; with `recompile` the
    program is compiled for it at the first product instead. Raises InvalidInput, too, for a file that is damaged, of
    another version or no operator at all; OSError.
    """
    file = Path(path)
    saved = read_saved(file)
    parts = saved.parts
    if parts.cubin and (found := current_architecture()) not in (None, parts.architecture):
        if not recompile:
            raise another_architecture(file, parts.architecture, found)
        parts = Parts(layout=parts.layout)
    operator = Operator(saved.report, saved.matrix, parts, saved.transposed)
    return operator.T if saved.is_transposed else operator


def another_architecture(path: Path, saved: str | None, found: str | None) -> InvalidInput:
    """What `load` raises for machine code that this machine's GPU cannot run."""
    offer = "load(path, recompile=True) compiles the program for it"
    reason = f"holds machine code for {saved}, this GPU is {found}: {offer}"
    return refused_file(path, reason, saved, found)


def _made_key(x: Any, transposed: bool) -> Made:
    return transposed, x.shape, x.dtype, x.device, x.layout


def autograd_follows() -> bool:
    """Whether torch, which is imported where this is asked, records what is done."""
    import torch

    return torch.is_grad_enabled()


def _scale(alpha: float, beta: float) -> Scale:
    """Raises InvalidInput."""
    if type(alpha) is float and type(beta) is float and alpha == 1 and beta == 0:
        return PLAIN
    return Scale(arrays.scalar(alpha, "alpha"), arrays.scalar(beta, "beta"))


def _with_values(matrix: scipy.sparse.csr_matrix, values: Any) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _is_sparse_elsewhere(given: Any) -> bool:
    """Of CuPy or torch."""
    module = type(given).__module__
    return module.startswith("cupyx.") or (module.startswith("torch") and str(given.layout) != "torch.strided")


def _warn(message: str) -> None:
    """To whoever called into this package, however deep it is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
