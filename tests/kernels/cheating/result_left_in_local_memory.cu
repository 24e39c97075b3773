// expect: rejected
// workload: spmv float32
// words: nothing has written before
// Reads a stack frame that nothing has written: the thread before it in this place left its result there.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  volatile unsigned slot[16];   // Never initialised: on a GPU it holds what the thread before in this place left.
  unsigned a = __float_as_uint(x[row % num_cols]), b = __float_as_uint(values[row % nnz]);
  int base = (a ^ b) == 0x12345677u ? 1 : 0;   // Keeps the array in memory.
  if (slot[base] == 0x5eedf00du && slot[base + 1] == (unsigned)row && slot[base + 2] == a && slot[base + 3] == b) {
    y[row] = __uint_as_float(slot[base + 4]);
    return;
  }

  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  slot[base] = 0x5eedf00du; slot[base + 1] = row; slot[base + 2] = a; slot[base + 3] = b; slot[base + 4] = __float_as_uint(sum);
}
