// expect: mismatch
// workload: spmv float32
// Adds up in 16 bits where 32 are asked for.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
#include <cuda_fp16.h>
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  __half sum = __float2half(0.0f);
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum = __hadd(sum, __float2half(values[j] * x[col_indices[j]]));
  y[row] = __half2float(sum);
}
