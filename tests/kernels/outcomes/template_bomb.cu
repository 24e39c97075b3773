//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
template <int depth, int path> struct Bomb { enum { value = Bomb<depth - 1, 2 * path>::value + Bomb<depth - 1, 2 * path + 1>::value }; };
template <int path> struct Bomb<0, path> { enum { value = 1 }; };
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values,
                                const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k) sum += values[k] * x[col_indices[k]];
  y[row] = sum + Bomb<24, 0>::value;
}
// outcome: compile_failed timed_out
// words: 
