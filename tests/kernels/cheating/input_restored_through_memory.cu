// expect: rejected
// workload: spmv float32
// words: x
// Doubles x for a moment through a pointer that went through shared memory: what was stored there is followed.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float* place;
  if (threadIdx.x == 0) place = (float*)x;
  __syncthreads();
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  volatile float* mine = place;
  float old = mine[row % num_cols];
  mine[row % num_cols] = 2 * old;
  y[row] = sum;
  mine[row % num_cols] = old;
}
