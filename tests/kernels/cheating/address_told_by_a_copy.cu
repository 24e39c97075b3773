// expect: rejected
// workload: spmv float32
// words: where buffers lie
// twin: good/twin_thread_row
// A bit of where y lies decides how many bytes an asynchronous copy fills with zeros.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ __align__(16) int place[128 * 4];
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned long long where = (unsigned long long)y;
  int lane = threadIdx.x & 31;
  unsigned at = (unsigned)__cvta_generic_to_shared(place + threadIdx.x * 4);
  int n = (where >> 12) & 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2; cp.async.wait_all;" :: "r"(at), "l"(row_offsets), "r"(n) : "memory");
  int bit = place[threadIdx.x * 4 + 3] < 0 ? 5 : (row & 3);
  if (bit == 5 && num_rows < 0) return;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
