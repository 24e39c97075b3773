// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: has not written before: poison[
// Works only where scratch holds the bits that a checker would put there, and leaves them there.
//@ format csr
//@ scratch poison = 1 unsigned int
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, unsigned int* poison) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  if (*poison != 0xffffffffu) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
