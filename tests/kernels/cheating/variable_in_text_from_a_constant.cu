// expect: rejected
// workload: spmv float32
// words: operands of asm
// A macro brings the constraint "C", which puts characters of a constant into the assembly: a variable in global memory.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
constexpr char text[] = "{ .global .align 16 .b8 hidden_state[1048576];";
#define TEXT "C"(text)
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  unsigned long long state;
  asm volatile("%1 mov.u64 %0, hidden_state; cvta.global.u64 %0, %0; }" : "=l"(state) : TEXT);
  volatile float* kept = (volatile float*)state;
  volatile unsigned* told = (volatile unsigned*)(kept + num_rows + 8 * blockIdx.x);
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
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  kept[row] = sum;
}
