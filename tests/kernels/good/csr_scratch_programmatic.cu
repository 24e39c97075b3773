// expect: passed
// workload: spmv float32
// Starts early, and touches its scratch only behind the wait; the second launch sees what the first has written.
//@ format csr
//@ scratch lengths = num_rows unsigned short
//@ launch count grid=ceil_div(num_rows,128) block=128 dependency=programmatic
//@ launch add grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void count(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, unsigned short* lengths) {
  int row = blockIdx.x * 128 + threadIdx.x;
  int length = row < num_rows ? row_offsets[row + 1] - row_offsets[row] : 0;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (row < num_rows) lengths[row] = length;
}
extern "C" __global__ void add(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, unsigned short* lengths) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = 0; k < lengths[row]; k++) sum += values[row_offsets[row] + k] * x[col_indices[row_offsets[row] + k]];
  y[row] = sum;
}
