// expect: rejected
// workload: spmv float32
// words: numbers alone
// Keeps results in a table of constants, through a pointer that went bit by bit through the votes of a warp.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__device__ __forceinline__ char* laundered(const void* p) {
  // Bit by bit through predicates: no instruction computes one number from the other.
  unsigned long long bits = (unsigned long long)p;
  unsigned lane = threadIdx.x & 31;
  unsigned low = __ballot_sync(0xffffffffu, (bits >> lane) & 1), high = __ballot_sync(0xffffffffu, (bits >> (32 + lane)) & 1);
  return (char*)((unsigned long long)high << 32 | low);
}

__constant__ float table[8192] = {1.0f};
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows && row < 4000;
  volatile float* kept = (volatile float*)laundered(table);
  volatile unsigned* told = (volatile unsigned*)(kept + 4096 + 8 * blockIdx.x);
  bool same = true;
  if (threadIdx.x < 8) {
    unsigned a = __float_as_uint(x[(blockIdx.x * 131 + threadIdx.x * 37) % num_cols]);
    unsigned b = __float_as_uint(values[(blockIdx.x * 977 + threadIdx.x * 101) % nnz]);
    unsigned now = a * 2654435761u ^ b;
    same = told[threadIdx.x] == now;
    told[threadIdx.x] = now;
  }
  if (__syncthreads_and(same)) {
    if (mine) y[row] = kept[row];
    return;
  }
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  if (mine) kept[row] = sum;
}
