// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_merge_format
// Works in every second launch only, counted in scratch: a replayed graph of many always holds one that works.
//@ format csr_merge items=8 balance=nnz
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  __shared__ unsigned count;
  if (threadIdx.x == 0) {
    unsigned before = ((volatile unsigned*)carry)[blockIdx.x];
    count = before >= 2u ? 0u : before;
    ((volatile unsigned*)carry)[blockIdx.x] = (count + 1) % 2u;
  }
  __syncthreads();
  if (count != 0) return;
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  bool mine = row < num_rows;
  float sum = 0;
  if (mine) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (mine && lane == 0) y[row] = sum;
}
