// expect: passed
// workload: spmv float32
// Values come through a pipeline of the whole block, two stages deep, by asynchronous copies.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,64) block=64
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  constexpr int chunk = 256;
  __shared__ float staged[2][chunk];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int first = blockIdx.x * 64, row = first + threadIdx.x;
  int from = row_offsets[min(first, num_rows)], to = row_offsets[min(first + 64, num_rows)];
  int begin = row < num_rows ? row_offsets[row] : to, end = row < num_rows ? row_offsets[row + 1] : to;
  int num_chunks = (to - from + chunk - 1) / chunk;
  float sum = 0;
  for (int fetched = 0, used = 0; used < num_chunks; used++) {
    for (; fetched < num_chunks && fetched < used + 2; fetched++) {
      pipe.producer_acquire();
      int at = from + fetched * chunk;
      for (int j = threadIdx.x; j < min(chunk, to - at); j += 64)
        cuda::memcpy_async(&staged[fetched & 1][j], values + at + j, sizeof(float), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    int at = from + used * chunk;
    for (int j = max(begin, at); j < min(end, at + chunk); j++) sum += staged[used & 1][j - at] * x[col_indices[j]];
    pipe.consumer_release();
  }
  if (row < num_rows) y[row] = sum;
}
