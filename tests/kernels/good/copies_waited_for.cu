// expect: passed
// workload: spmv float32
// Copies entries of x to shared memory asynchronously and waits for each.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float entries[128];
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  unsigned entry = (unsigned)__cvta_generic_to_shared(entries + threadIdx.x);
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(entry), "l"(x + col_indices[j]) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    sum += values[j] * entries[threadIdx.x];
  }
  y[row] = sum;
}
