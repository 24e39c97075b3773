// expect: passed
// workload: spmv float32
// A CUB block reduction: one block a row.
//@ format csr
//@ launch spmv grid=num_rows block=128
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = 0;
  for (int j = row_offsets[blockIdx.x] + threadIdx.x; j < row_offsets[blockIdx.x + 1]; j += 128)
    sum += values[j] * x[col_indices[j]];
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
