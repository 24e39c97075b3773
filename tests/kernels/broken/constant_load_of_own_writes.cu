// expect: rejected
// workload: spmv float32
// words: read as a constant
// Reads what the kernel itself writes by a load that counts as constant.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  float sum = 0;
  if (row < num_rows) {
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
    y[row] = sum / 2;
  }
  __syncthreads();
  if (row < num_rows) {
    float half;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(half) : "l"(y + row) : "memory");
    y[row] = sum / 2 + half;
  }
}
