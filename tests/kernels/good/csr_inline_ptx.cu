// expect: passed
// workload: spmv float32
// Cache hints by inline PTX: a legitimate tool.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__device__ __forceinline__ float load_streaming(const float* address) {
  float value;
  asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += load_streaming(values + j) * x[col_indices[j]];
  y[row] = sum;
}
