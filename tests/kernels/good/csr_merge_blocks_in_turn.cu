// expect: passed
// workload: spmv float32
// Each block waits for the one before it: right where blocks start in their order, as on every GPU so far.
//@ format csr_merge items=64
//@ launch clear grid=1 block=1
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void clear(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  carry[0] = 0;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  volatile float* turn = carry;
  if (threadIdx.x == 0) while (turn[0] < (float)blockIdx.x) __nanosleep(20);
  __syncthreads();
  if (row < num_rows) {
    float sum = 0;
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
    y[row] = sum;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) turn[0] = blockIdx.x + 1;
}
