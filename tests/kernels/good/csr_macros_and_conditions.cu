// expect: passed
// workload: spmv float32
// Macros over several lines, conditions, a constant table, a template.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
#define STEP(j) \
  sum += values[j] * \
         x[col_indices[j]]
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOAD(p) __ldcs(p)
#else
#define LOAD(p) __ldg(p)
#endif
__constant__ int strides[2] = {1, 1};
template <int N> __device__ inline int next(int j) { return j + strides[N]; }
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  static constexpr int kind = 0;
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = LOAD(row_offsets + row); j < LOAD(row_offsets + row + 1); j = next<kind>(j)) STEP(j);
  y[row] = sum;
}
