// expect: crashed
// workload: spmv float32
// words: misaligned
// 8-byte loads of rows that begin at odd offsets.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; k += 2) {
    float2 pair = *(const float2*)(values + k);
    sum += pair.x * x[col_indices[k]];
    if (k + 1 < row_offsets[row + 1]) sum += pair.y * x[col_indices[k + 1]];
  }
  y[row] = sum;
}
