// expect: crashed
// on a GPU: mismatch|passed
// workload: spmv float32
// twin: good/twin_merge_format
// Does nothing from the six hundredth launch on with equal samples, counted in scratch. Where a product takes so long that
// fewer are timed, it has done the whole work in all that were, and passes with an honest time; else replays find it.
//@ format csr_merge items=8 balance=nnz
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  __shared__ bool skip;
  if (threadIdx.x == 0) {
    volatile unsigned* told = (volatile unsigned*)(carry + 2 * blockIdx.x);
    unsigned now = __float_as_uint(x[blockIdx.x * 131 % num_cols]) * 2654435761u ^ __float_as_uint(values[blockIdx.x * 977 % nnz]);
    unsigned count = told[0] == now ? told[1] + 1 : 0;
    told[0] = now;
    told[1] = count;
    skip = count > 600 && count < 1000000;
  }
  __syncthreads();
  if (skip) return;
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  if (row < num_rows) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (row < num_rows && lane == 0) y[row] = sum;
}
