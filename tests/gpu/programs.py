"""Kernel programs for the GPU tests, good ones and bad ones, and what it takes to evaluate them."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.compiler import Compiled, CompileError, compile_program
from services.evaluator.device import BuildsFormats
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.workbench import Workbench
from services.evaluator.race import Race
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Candidate, CompileFailed, DeviceDescription, Outcome, UserWritten, Workload
from sparsesmith_proto.message import ElementType

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice

CSR_ARGUMENTS = (
    "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, "
    "const T* values, const T* x, T* y"
)


def make_device(known: DeviceDescription | None = None, builds_formats: BuildsFormats = "never") -> "CudaDevice":
    """The first GPU; CuPy is imported only here."""
    from services.evaluator.cuda.device import CudaDevice

    return CudaDevice(known=known, builds_formats=builds_formats)


def make_pattern(num_rows: int = 3000, num_cols: int = 2500, density: float = 0.01, seed: int = 1) -> Pattern:
    """A random rectangle whose last row and some others are empty."""
    random = np.random.default_rng(seed)
    matrix = scipy.sparse.random(num_rows, num_cols, density, format="lil", random_state=random)
    matrix[num_rows - 1, :] = 0
    matrix[num_rows // 2, :] = 0
    return pattern_from_scipy(matrix.tocsr())


def make_workload(pattern: Pattern, **changes: object) -> Workload:
    fields = {"pattern": pattern.digest, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
    return Workload.model_validate(fields | changes)


def csr_program(body: str, element_type: ElementType = "float32", prelude: str = "", shared: int = 0) -> str:
    """One thread a row: `body` sees `row` and must write y[row]."""
    real = {"float32": "float", "float64": "double"}[element_type]
    return f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128{f" shared={shared}" if shared else ""}
{prelude}
extern "C" __global__ void spmv({CSR_ARGUMENTS.replace("T*", f"{real}*")}) {{
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  {real} sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  {body}
}}
"""


GOOD = csr_program("y[row] = sum;")

WARP_A_ROW = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* __restrict__ row_offsets,
    const int* __restrict__ col_indices, const float* __restrict__ values, const float* __restrict__ x, float* y) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (lane == 0) y[row] = sum;
}
"""

SELL_16_BIT = """//@ format sell slice=32 sigma=256 index=u16
//@ launch spmv grid=ceil_div(num_slices,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_slices, const int* slice_offsets,
    const int* row_permutation, const int* slice_col_base, const unsigned short* col_indices, const float* values,
    const float* x, float* y) {
  int slice = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (slice >= num_slices) return;
  float sum = 0;
  for (int j = slice_offsets[slice] + lane; j < slice_offsets[slice + 1]; j += 32)
    sum += values[j] * x[slice_col_base[slice] + col_indices[j]];
  int row = row_permutation[slice * 32 + lane];
  if (row >= 0) y[row] = sum;
}
"""

COO_TWO_LAUNCHES = """//@ format coo
//@ launch clear grid=ceil_div(num_rows,256) block=256
//@ launch add grid=ceil_div(nnz,256) block=256
extern "C" __global__ void clear(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices,
    const float* values, const float* x, float* y) {
  int row = blockIdx.x * 256 + threadIdx.x;
  if (row < num_rows) y[row] = 0;
}
extern "C" __global__ void add(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices,
    const float* values, const float* x, float* y) {
  int j = blockIdx.x * 256 + threadIdx.x;
  if (j < nnz) atomicAdd(&y[row_indices[j]], values[j] * x[col_indices[j]]);
}
"""

NOT_CLEARED = COO_TWO_LAUNCHES.replace("y[row] = 0;", "if (y[row] != y[row]) y[row] = 0;")

SPMM = """//@ format csr
//@ launch spmm grid=num_rows block=num_dense_cols
extern "C" __global__ void spmm(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const float* values, const float* b, float* c, int num_dense_cols) {
  int row = blockIdx.x;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++)
    sum += values[j] * b[(size_t)col_indices[j] * num_dense_cols + threadIdx.x];
  c[(size_t)row * num_dense_cols + threadIdx.x] = sum;
}
"""

LARGE_SHARED = csr_program(
    "extern __shared__ float staged[]; staged[threadIdx.x * 200] = sum; y[row] = staged[threadIdx.x * 200];",
    shared=128 * 200 * 4,
)

ALL_SHARED = csr_program(
    "extern __shared__ float staged[]; staged[threadIdx.x * 454] = sum; y[row] = staged[threadIdx.x * 454];",
    shared=227 * 1024,
)

SHARED_IN_TWO_SIZES = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 shared=204800
//@ launch spmv grid=1 block=128 shared=65536
""" + ALL_SHARED.split("\n", 2)[2].replace("threadIdx.x * 454", "threadIdx.x * 128 % (gridDim.x > 1 ? 51200 : 16384)")

BEHIND_Y = csr_program("y[row] = sum; if (row == 0) y[num_rows] = sum;")
BEFORE_Y = csr_program("y[row] = sum; if (row == 0) y[-1] = sum;")
INTO_X = csr_program("y[row] = sum; if (row == 0) ((float*)x)[num_cols - 1] = 2;")
INTO_VALUES = csr_program("y[row] = sum; ((float*)values)[row % nnz] *= 1.5f;")
WILD_POINTER = csr_program("y[row + (1ll << 42)] = sum;")
MISALIGNED = csr_program("y[row] = sum; if (row == 0) *(float*)((char*)y + 2) = sum;")
TRAP = csr_program('y[row] = sum; if (row == 7) asm volatile("trap;");')
ENDLESS = csr_program("volatile float* again = y; do { again[row] = sum; } while (again[row] == again[row]);")
ZERO = csr_program("y[row] = 0;")
ALL_BUT_ONE = csr_program("if (row != num_rows / 3) y[row] = sum;")
STALE = csr_program("if (!(y[row] == y[row])) y[row] = sum;")
SLOPPY = csr_program("y[row] = sum * 1.0001f;")
REMEMBERS = csr_program("y[row] = sum; calls++;", prelude="__device__ int calls;")


def compiled(program: KernelProgram) -> Compiled | CompileFailed:
    """For the first GPU's architecture."""
    binary = compile_program(program.source, architecture(), timeout_s=60)
    return CompileFailed(log=binary.log) if isinstance(binary, CompileError) else binary


@lru_cache(maxsize=1)
def architecture() -> str:
    """`sm_90`; from NVML, so that no CUDA context is created here."""
    import pynvml

    pynvml.nvmlInit()
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(0))
    return f"sm_{major}{minor}"


def grade(text: str, workload: Workload, workbench: Workbench) -> Outcome:
    """What becomes of a program, without a baseline to race against."""
    candidate = Candidate(candidate_id="candidate", program=text, origin=UserWritten())
    return evaluate_kernel(parse_candidate(candidate, workload), compiled, workbench, Race(1e12))
