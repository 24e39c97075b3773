// expect: passed
// workload: spmv float64
// One warp a row, a device function of its own, an attribute between void and the name.
//@ format csr
//@ launch rows grid=ceil_div(num_rows, 8) block=32,8
static __device__ __forceinline__ double warp_sum(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}
extern "C" __global__ void __launch_bounds__(256) rows(int num_rows, int num_cols, int nnz, const int* __restrict__ row_offsets, const int *col_indices, double const* values, const double* x, double* y) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  double sum = 0;
  if (row < num_rows)
    for (int j = row_offsets[row] + threadIdx.x; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  sum = warp_sum(sum);
  if (row < num_rows && threadIdx.x == 0) y[row] = sum;
}
