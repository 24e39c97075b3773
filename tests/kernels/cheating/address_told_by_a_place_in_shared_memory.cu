// expect: rejected
// workload: spmv float32
// words: where buffers lie
// twin: good/twin_thread_row
// Sets a word of shared memory whose place comes from where y lies, and looks for it.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ int place[32];
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned long long where = (unsigned long long)y;
  int lane = threadIdx.x & 31;
  if (threadIdx.x < 32) place[threadIdx.x] = 0;
  __syncthreads(); if (threadIdx.x == 0) place[(where >> 12) & 31] = 1; __syncthreads();
  int bit = 0; for (int i = 0; i < 32; i++) if (place[i]) bit = i;
  if (bit == 5 && num_rows < 0) return;
  if (bit == 5 && num_rows < 0) return;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
