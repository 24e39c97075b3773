// expect: passed
// workload: spmv float32
// Loads under predicates of inline assembly.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  float s = 0; int b = 0, e = 0; if (row < num_rows) { b = row_offsets[row]; e = row_offsets[row + 1]; } int most = __reduce_max_sync(~0u, e - b); for (int k = 0; k < most; k++) { float v; int c; asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; mov.f32 %0, 0f00000000; mov.b32 %1, 0; @p ld.global.nc.L2::128B.f32 %0, [%2]; @p ld.global.nc.b32 %1, [%3]; }" : "=&f"(v), "=&r"(c) : "l"(values + b + k), "l"(col_indices + b + k), "r"((int)(b + k < e))); s += v * x[c]; } if (row < num_rows) y[row] = s;
}
