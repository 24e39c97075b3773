// expect: compile_failed|timed_out
// workload: spmv float32
// Keeps the compiler busy.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
template <int A, int B> struct Bomb { static constexpr int value = Bomb<A - 1, B * 2>::value + Bomb<A - 1, B * 2 + 1>::value; };
template <int B> struct Bomb<0, B> { static constexpr int value = B; };
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = Bomb<24, 1>::value * 0.0f;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
