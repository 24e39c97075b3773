// expect: rejected
// workload: spmv float32
// words: get_sreg_globaltimer
// twin: good/twin_thread_row
// Measures how long its first entries take by a function of a header, and hides the time in shared memory, a bit at a time.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
#include <cuda/barrier>
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ int late[32];
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned long long began = cuda::ptx::get_sreg_globaltimer();
  float first = row < num_rows ? x[row % num_cols] : 0;
  unsigned long long took = cuda::ptx::get_sreg_globaltimer() - began;
  if (threadIdx.x < 32) late[threadIdx.x] = first == 77;
  __syncthreads();
  for (int bit = 0; bit < 32; bit++) if (took >> bit & 1) ((volatile int*)late)[bit] = 1;
  __syncthreads();
  if (row >= num_rows) return;
  float sum = 0;
  if (((volatile int*)late)[20] == 0) for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
