// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// words: not written before
// Five low bits of every result tell sampled inputs; the result of before is looked at by an asynchronous copy of it.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  unsigned tag = 0;
  for (int i = 0; i < 4; i++)
    tag = tag * 31u ^ __float_as_uint(x[(blockIdx.x * 131 + i * 37) % num_cols]) ^ __float_as_uint(values[(blockIdx.x * 977 + i * 101) % nnz]) * 2654435761u;
  tag = (tag ^ tag >> 16 ^ tag >> 8 ^ tag >> 5) & 31u;
  if (tag == 31u) tag = 30u;
  __shared__ unsigned kept[128];
  unsigned at = (unsigned)__cvta_generic_to_shared(kept + threadIdx.x);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;" :: "r"(at), "l"(y + (mine ? row : 0)) : "memory");
  unsigned before = mine ? kept[threadIdx.x] : tag;
  if (__syncthreads_and((before & 31u) == tag)) return;
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = __uint_as_float((__float_as_uint(sum) & ~31u) | tag);
}
