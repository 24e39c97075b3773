// expect: crashed
// workload: spmv float32
// words: misaligned
// A 16-byte load from a 4-byte boundary; the matrix needs rows that begin at odd offsets.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float4 part = *(const float4*)(x + 1);
  y[row] = part.x + part.y * part.z - part.w;
}
