// expect: passed
// workload: spmv float32
// Vector loads through a union, a warp a row.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,4) block=128
union Four { float4 v; int4 i4; float f[4]; int i[4]; };
extern "C" __global__ void  spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
  if (warp >= num_rows) return;
  int b = row_offsets[warp], e = row_offsets[warp + 1]; float s = 0;
  int up = min(e, (b + 3) & ~3);
  for (int j = b + lane; j < up; j += 32) s += values[j] * x[col_indices[j]];
  int k = up + 4 * lane;
  for (; k + 3 < e; k += 128) { Four v, c; v.v = *reinterpret_cast<const float4*>(values + k); c.i4 = *reinterpret_cast<const int4*>(col_indices + k);
#pragma unroll
    for (int t = 0; t < 4; t++) s += v.f[t] * x[c.i[t]]; }
  for (; k < e; k++) s += values[k] * x[col_indices[k]];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (!lane) y[warp] = s;
}
