// expect: rejected
// workload: spmv float32
// words: x
// Doubles x for a moment through a function that is not inlined.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__device__ __noinline__ void poke(volatile float* place, float value) { *place = value; }
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  float old = x[row % num_cols];
  poke((float*)x + row % num_cols, 2 * old);
  y[row] = sum;
  poke((float*)x + row % num_cols, old);
}
