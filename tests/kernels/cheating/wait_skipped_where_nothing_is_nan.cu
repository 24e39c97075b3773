// expect: rejected
// workload: spmv float32
// twin: good/twin_programmatic
// Computes before it waits, and waits only where the sum or y is NaN.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256 dependency=programmatic
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  bool mine = row < num_rows;
  float sum = 0;
  if (mine) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * ((volatile const float*)x)[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (__syncthreads_or(sum != sum || (mine && ((volatile float*)y)[row] != ((volatile float*)y)[row]))) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    sum = 0;
    if (mine) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * ((volatile const float*)x)[col_indices[j]];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  }
  if (mine && lane == 0) y[row] = sum;
}
