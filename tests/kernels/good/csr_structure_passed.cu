// expect: passed
// workload: spmv float32
// A function that is not inlined takes pointers to what is read and what is written in one structure.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
struct Pair { const float* a; float* b; };
__device__ __noinline__ void put(Pair p, int i, float v) { p.b[i] = v + 0 * p.a[0]; }
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  put(Pair{x, y}, row, sum);
}
