// expect: rejected
// workload: spmv float32
// words: bulk store is not waited for
// Writes results by a bulk copy and leaves: shared memory may be another block's before it has been read.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,32) block=32
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ alignas(128) float results[32];
  int first = blockIdx.x * 32, row = first + threadIdx.x;
  float sum = 0;
  if (row < num_rows) for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  if (first + 32 > num_rows) { if (row < num_rows) y[row] = sum; return; }
  results[threadIdx.x] = sum;
  __syncwarp();
  if (threadIdx.x == 0)
    asm volatile("fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128; cp.async.bulk.commit_group;"
                 :: "l"(y + first), "r"((unsigned)__cvta_generic_to_shared(results)) : "memory");
}
