// expect: passed
// workload: spmv float32
// Dynamic shared memory above 48 KiB.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 shared=128*512
extern __shared__ float sums[];
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  float* mine = sums + threadIdx.x * 128;
  if (row >= num_rows) return;
  mine[0] = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) mine[0] += values[j] * x[col_indices[j]];
  y[row] = mine[0];
}
