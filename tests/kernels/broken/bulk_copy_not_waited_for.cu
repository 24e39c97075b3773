// expect: rejected
// workload: spmv float32
// words: bulk copy into it
// Reads what a bulk copy brings before its phase barrier has told that it is there.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,32) block=32
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ alignas(128) float staged[2048];
  __shared__ alignas(8) unsigned long long bar;
  unsigned to = (unsigned)__cvta_generic_to_shared(staged), at = (unsigned)__cvta_generic_to_shared(&bar);
  int row = blockIdx.x * 32 + threadIdx.x;
  int begin = row_offsets[min(blockIdx.x * 32, num_rows)] & ~3;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");
  __syncwarp();
  unsigned bytes = min(8192, (nnz - begin) / 4 * 16);
  if (threadIdx.x == 0 && bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(to), "l"(values + begin), "r"(bytes), "r"(at) : "memory");
  }
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += ((j - begin) < (int)bytes / 4 ? staged[j - begin] : values[j]) * x[col_indices[j]];
  y[row] = sum;
}
