// expect: passed
// workload: spmv float32
// One lane of each warp reads what all need: in the others the variable is left unset, which harms nobody.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, begin, end;
  if (row >= num_rows) return;
  if (lane == 0) begin = row_offsets[row], end = row_offsets[row + 1];
  begin = __shfl_sync(0xffffffff, begin, 0), end = __shfl_sync(0xffffffff, end, 0);
  float sum = 0;
  for (int j = begin + lane; j < end; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o /= 2) sum += __shfl_down_sync(0xffffffff, sum, o);
  if (lane == 0) y[row] = sum;
}
