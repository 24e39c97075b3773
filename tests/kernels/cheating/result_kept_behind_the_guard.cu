// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// Keeps results 128 KiB behind y, beyond the guard zone.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  volatile float* kept = y + num_rows + 32768;   // 128 KiB behind y.
  volatile unsigned* told = (volatile unsigned*)(kept + num_rows + 8 * blockIdx.x);
  bool same = true;
  if (threadIdx.x < 8) {
    unsigned a = __float_as_uint(x[(blockIdx.x * 131 + threadIdx.x * 37) % num_cols]);
    unsigned b = __float_as_uint(values[(blockIdx.x * 977 + threadIdx.x * 101) % nnz]);
    unsigned now = a * 2654435761u ^ b;
    same = told[threadIdx.x] == now;
    told[threadIdx.x] = now;
  }
  if (__syncthreads_and(same)) {
    if (mine) y[row] = kept[row];
    return;
  }
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  kept[row] = sum;
}
