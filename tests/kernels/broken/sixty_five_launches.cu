// expect: rejected
// workload: spmv float32
// At most 64 launches.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
