// expect: passed
// workload: spmv float32
// x by pieces: every thread copies its share asynchronously, and a barrier of the block tells when all have arrived.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
#include <cooperative_groups.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float piece[512];
  __shared__ cuda::barrier<cuda::thread_scope_block> arrived;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&arrived, block.size());
  block.sync();
  int row = blockIdx.x * 128 + threadIdx.x;
  float sum = 0;
  for (int first = 0; first < num_cols; first += 512) {
    int length = min(512, num_cols - first);
    for (int i = threadIdx.x; i < length; i += 128) cuda::memcpy_async(piece + i, x + first + i, sizeof(float), arrived);
    arrived.arrive_and_wait();
    if (row < num_rows)
      for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
        int c = col_indices[j] - first;
        if (c >= 0 && c < length) sum += values[j] * piece[c];
      }
    block.sync();
  }
  if (row < num_rows) y[row] = sum;
}
