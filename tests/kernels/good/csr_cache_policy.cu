// expect: passed
// workload: spmv float32
// A cache policy for half of the lines, its share a decimal number in the assembly.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void  spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x; if (row >= num_rows) return;
  unsigned long long policy; asm("createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %0, 0.5;" : "=l"(policy));
  float s = 0; for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) { int c; float u; asm("ld.global.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(u) : "l"(values + j), "l"(policy)); asm("ld.global.nc.L1::evict_last.u32 %0, [%1];" : "=r"(c) : "l"(col_indices + j)); s += u * x[c]; }
  y[row] = s;
}
