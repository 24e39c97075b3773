// expect: passed
// workload: spmv float32
// Tiles of a thread block.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,32) block=256
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int row = (blockIdx.x * 256 + threadIdx.x) / 8;
  float sum = 0;
  if (row < num_rows)
    for (int j = row_offsets[row] + tile.thread_rank(); j < row_offsets[row + 1]; j += 8) sum += values[j] * x[col_indices[j]];
  for (int step = 4; step > 0; step /= 2) sum += tile.shfl_xor(sum, step);
  if (row < num_rows && tile.thread_rank() == 0) y[row] = sum;
}
