// expect: passed
// workload: spmv float32
// A barrier object between the threads that multiply and the one that adds up. Its wait looks at a clock in some releases.
//@ format csr
//@ launch spmv grid=num_rows block=64
#include <cuda/barrier>
extern "C" __global__ void __launch_bounds__(64) spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ cuda::barrier<cuda::thread_scope_block> multiplied;
  __shared__ float sums[64];
  if (threadIdx.x == 0) init(&multiplied, 64);
  __syncthreads();
  float sum = 0;
  for (int j = row_offsets[blockIdx.x] + threadIdx.x; j < row_offsets[blockIdx.x + 1]; j += 64) sum += values[j] * x[col_indices[j]];
  sums[threadIdx.x] = sum;
  multiplied.arrive_and_wait();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < 64; i++) sum += sums[i];
  y[blockIdx.x] = sum;
}
