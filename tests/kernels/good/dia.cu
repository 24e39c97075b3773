// expect: passed
// workload: spmv float32
// A workload of few diagonals.
//@ format dia
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_diagonals, const int* diagonal_offsets, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int d = 0; d < num_diagonals; d++) {
    int col = row + diagonal_offsets[d];
    if (col >= 0 && col < num_cols) sum += values[(long long)d * num_rows + row] * x[col];
  }
  y[row] = sum;
}
