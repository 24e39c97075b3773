// expect: rejected
// workload: spmv float32
// words: stack frame
// A stack frame of half a mebibyte a thread: more than a GPU has for all its threads.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,1024) block=1024
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  volatile float frame[(1 << 17) - 256];
  for (int i = 0; i < nnz; i++) frame[i % ((1 << 17) - 256)] = i;
  float sum = frame[row % ((1 << 17) - 256)] * 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
