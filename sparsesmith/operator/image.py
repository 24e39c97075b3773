"""What the C library needs of a program on a matrix, as sections of a saved operator: the plan, in lines of text, and
machine code.

    plan 1
    architecture sm_90
    element float32 4                       the element type and its bytes
    matrix 40 30 120 1                      rows, columns, nonzeros, columns of the dense operands
    argument size 40 num_rows               the arguments of every kernel, in order: a number,
    argument index row_offsets              a section,
    argument values 480 values              bytes of device memory,
    argument input 30 x                     elements of what the caller hands in
    launch spmv 1 1 1 128 1 1 0 0 0         grid, block, shared bytes, the most of them in any launch of it, early start

Sections of A^T begin with `T.`; its `value_sources` count among the values of A.
"""

from collections.abc import Callable
from dataclasses import dataclass
from string import Template

import numpy as np
import numpy.typing as npt

from sparsesmith.cuda.nvrtc import compile_cubin
from sparsesmith.elements import ELEMENTS, WIDE_TYPES, c_type, sum_c_type
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import Layout
from sparsesmith.operations import Problem
from sparsesmith.program.binding import BoundProgram, bind
from sparsesmith.program.epilogue import scaled_source
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.message import Architecture, ElementType

_SUPPORT = Template("""$include
extern "C" __global__ void sparsesmith_gather(const $element* values, const int* sources, $element* packed,
                                              long long count) {
  for (long long first = blockIdx.x * 1024ll + threadIdx.x; first < count; first += gridDim.x * 1024ll) {
    int source[4];
    $element value[4];
    #pragma unroll
    for (int k = 0; k < 4; k++) source[k] = first + 256 * k < count ? sources[first + 256 * k] : -1;
    #pragma unroll
    for (int k = 0; k < 4; k++) value[k] = source[k] < 0 ? $element(0) : values[source[k]];
    #pragma unroll
    for (int k = 0; k < 4; k++) if (first + 256 * k < count) packed[first + 256 * k] = value[k];
  }
}
extern "C" __global__ void sparsesmith_add(const $element* product, $element* y, long long count, $sum alpha,
                                           $sum beta) {
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
    $sum scaled = alpha * $widen(product[i]);
    y[i] = $narrow(beta == $sum(0) ? scaled : scaled + beta * $widen(y[i]));
  }
}
""")


Compile = Callable[[str, Architecture], bytes]
"""Source to machine code. Raises NvrtcNotFound, InvalidProgram."""


@dataclass(frozen=True, eq=False)
class Direction:
    """A program bound to A or to A^T, with what was compiled of it."""

    program: KernelProgram
    layout: Layout
    problem: Problem
    cubin: bytes = b""
    """Empty: it is compiled."""
    order: npt.NDArray[np.integer] | None = None
    """Of A^T: for each of its nonzeros the place of its value among those of A."""

    def sections(
        self, architecture: Architecture, num_sms: int, prefix: str = "", compiled: Compile = compile_cubin
    ) -> dict[str, bytes | memoryview]:
        """Raises NvrtcNotFound; InvalidProgram where the program does not compile."""
        bound = bind(self.program, self.layout, self.problem, num_sms)
        found: dict[str, bytes | memoryview] = {
            "plan": _plan(bound, self.problem, architecture).encode(),
            "cubin": self.cubin or compiled(self.program.source, architecture),
        }
        if scaled := _scaled(self.program, bound, architecture, compiled):
            found["scaled"] = scaled
        found |= {f"index.{name}": as_bytes(array) for name, array in self.layout.indices.items()}
        sources = self._value_sources()
        if sources is not None:
            found["value_sources"] = as_bytes(sources.astype("<i4", copy=False))
        return {prefix + name: content for name, content in found.items()}

    def _value_sources(self) -> npt.NDArray[np.integer] | None:
        sources = self.layout.value_sources
        if self.order is None or sources is None:
            return sources if self.order is None else self.order
        return np.where(sources < 0, -1, self.order[np.maximum(sources, 0)])


def support_cubin(element_type: ElementType, architecture: Architecture, compiled: Compile = compile_cubin) -> bytes:
    """Kernels that new values and products that cannot be scaled in place need. Raises NvrtcNotFound."""
    element = ELEMENTS[element_type]
    source = _SUPPORT.substitute(
        include=f"#include <{element.header}>" if element.header else "",
        element=c_type(element_type),
        sum=sum_c_type(element_type),
        widen=element.widen,
        narrow=element.narrow,
    )
    return compiled(source, architecture)


def as_bytes(array: npt.NDArray[np.generic]) -> memoryview:
    """Its memory."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.view(np.uint8).reshape(-1).data if contiguous.size else memoryview(b"")


def _scaled(program: KernelProgram, bound: BoundProgram, architecture: Architecture, compiled: Compile) -> bytes:
    """Machine code that scales and adds where it stores; empty where the program does not allow it."""
    if bound.element_type not in WIDE_TYPES:
        return b""
    (output,) = bound.names("output")
    try:
        return compiled(scaled_source(program, output, bound.element_type), architecture)
    except InvalidProgram:
        return b""


def _plan(bound: BoundProgram, problem: Problem, architecture: Architecture) -> str:
    sizes = problem.sizes
    matrix = (sizes[name] for name in ("num_rows", "num_cols", "nnz", "num_dense_cols"))
    lines = [
        "plan 1",
        f"architecture {architecture}",
        f"element {problem.element_type} {ELEMENTS[problem.element_type].num_bytes}",
        f"matrix {' '.join(map(str, matrix))}",
    ]
    buffers = {buffer.name: buffer for buffer in bound.buffers}
    for argument in bound.arguments:
        match argument.role:
            case "size":
                lines.append(f"argument size {bound.sizes[argument.name]} {argument.name}")
            case "index":
                lines.append(f"argument index {argument.name}")
            case "values" | "scratch":
                lines.append(f"argument {argument.role} {buffers[argument.name].num_bytes} {argument.name}")
            case "input" | "inout" | "output":
                count = int(np.prod(buffers[argument.name].shape))
                lines.append(f"argument {argument.role} {count} {argument.name}")
    for launch in bound.launches:
        extents = " ".join(map(str, (*launch.grid, *launch.block)))
        early = int(launch.dependency == "programmatic")
        largest = bound.shared_bytes[launch.kernel]
        lines.append(f"launch {launch.kernel} {extents} {launch.shared_bytes} {largest} {early}")
    return "\n".join(lines) + "\n"
