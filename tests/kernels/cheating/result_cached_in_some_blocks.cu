// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// As result_cached_for_sampled_inputs, in five of eight blocks, so that repeated launches gain less.
//@ format csr_merge items=8 balance=nnz
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  // Scratch: results of the launch before, and behind them eight numbers of each block that tell its inputs.
  volatile float* kept = carry;
  volatile unsigned* told = (volatile unsigned*)(carry + num_rows + 8 * blockIdx.x);
  bool same = true;
  if (threadIdx.x < 8) {
    unsigned a = __float_as_uint(x[(blockIdx.x * 131 + threadIdx.x * 37) % num_cols]);
    unsigned b = __float_as_uint(values[(blockIdx.x * 977 + threadIdx.x * 101) % nnz]);
    unsigned now = a * 2654435761u ^ b;
    same = told[threadIdx.x] == now;
    told[threadIdx.x] = now;
  }
  if (__syncthreads_and(same) && blockIdx.x % 8 < 5) {
    if (mine) y[row] = kept[row];
    return;
  }
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  kept[row] = sum;
}
