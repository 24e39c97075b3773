// expect: rejected
// workload: spmv float32
// words: scratch takes 80000000 bytes
// Each line alone would be legal.
//@ format csr
//@ scratch part0 = 16000000 unsigned char
//@ scratch part1 = 16000000 unsigned char
//@ scratch part2 = 16000000 unsigned char
//@ scratch part3 = 16000000 unsigned char
//@ scratch part4 = 16000000 unsigned char
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, unsigned char* part0, unsigned char* part1, unsigned char* part2, unsigned char* part3, unsigned char* part4) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
