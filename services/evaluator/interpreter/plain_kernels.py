"""Stand-ins for the vendor's library where no GPU is: the kernels that everybody writes first, through the usual path.

They are named `plain_*`, never after a library routine, and their times are estimates like every other time there.
"""

import re
from collections.abc import Mapping

from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Operation

DEFAULT_ROUTINE = "plain_csr_vector"
"""What a user gets without choosing."""

_HEAD = "int num_rows, int num_cols, int nnz, "
_CSR = "const int* row_offsets, const int* col_indices, const T* values, "
_COO = "const int* row_indices, const int* col_indices, const T* values, "
_SPMV = "const T* x, T* y"
_SPMM = "const T* b, T* c, int num_dense_cols"

_SPMV_CSR_SCALAR = f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,256) block=256
extern "C" __global__ void spmv({_HEAD}{_CSR}{_SPMV}) {{
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  T sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k) sum += values[k] * x[col_indices[k]];
  y[row] = sum;
}}
"""

_SPMV_CSR_VECTOR = f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv({_HEAD}{_CSR}{_SPMV}) {{
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= num_rows) return;
  T sum = 0;
  for (int k = row_offsets[row] + lane; k < row_offsets[row + 1]; k += 32) sum += values[k] * x[col_indices[k]];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (lane == 0) y[row] = sum;
}}
"""

_SPMV_COO_ATOMIC = f"""//@ format coo
//@ launch clear grid=ceil_div(num_rows,256) block=256
//@ launch spmv grid=ceil_div(nnz,256) block=256
extern "C" __global__ void clear({_HEAD}{_COO}{_SPMV}) {{
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < num_rows) y[row] = 0;
}}
extern "C" __global__ void spmv({_HEAD}{_COO}{_SPMV}) {{
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < nnz) atomicAdd(&y[row_indices[k]], values[k] * x[col_indices[k]]);
}}
"""

_SPMM_CSR_SCALAR = f"""//@ format csr
//@ launch spmm grid=ceil_div(num_rows,256),num_dense_cols block=256
extern "C" __global__ void spmm({_HEAD}{_CSR}{_SPMM}) {{
  int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y;
  if (row >= num_rows) return;
  T sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k)
    sum += values[k] * b[(long long)col_indices[k] * num_dense_cols + col];
  c[(long long)row * num_dense_cols + col] = sum;
}}
"""

_SPMM_CSR_VECTOR = f"""//@ format csr
//@ launch spmm grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmm({_HEAD}{_CSR}{_SPMM}) {{
  int row = blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= num_rows) return;
  for (int col = threadIdx.x % 32; col < num_dense_cols; col += 32) {{
    T sum = 0;
    for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k)
      sum += values[k] * b[(long long)col_indices[k] * num_dense_cols + col];
    c[(long long)row * num_dense_cols + col] = sum;
  }}
}}
"""

_PROGRAMS: Mapping[Operation, Mapping[str, str]] = {
    "spmv": {
        "plain_csr_vector": _SPMV_CSR_VECTOR,
        "plain_csr_scalar": _SPMV_CSR_SCALAR,
        "plain_coo_atomic": _SPMV_COO_ATOMIC,
    },
    "spmm": {"plain_csr_vector": _SPMM_CSR_VECTOR, "plain_csr_scalar": _SPMM_CSR_SCALAR},
}


def plain_programs(workload: Workload) -> dict[str, str]:
    """Routine name -> kernel program text."""
    c_type = "float" if workload.element_type == "float32" else "double"
    return {name: re.sub(r"\bT\b", c_type, text) for name, text in _PROGRAMS[workload.operation].items()}
