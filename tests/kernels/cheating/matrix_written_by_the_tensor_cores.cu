// expect: rejected
// workload: spmv float32
// words: values
// Doubles A for a moment by wmma.store.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch spoil grid=1 block=32
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
extern "C" __global__ void spoil(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  float f0, f1, f2, f3, f4, f5, f6, f7;
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
    : "=f"(f0), "=f"(f1), "=f"(f2), "=f"(f3), "=f"(f4), "=f"(f5), "=f"(f6), "=f"(f7) : "l"(values) : "memory");
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;"
    :: "f"(2*f0), "f"(2*f1), "f"(2*f2), "f"(2*f3), "f"(2*f4), "f"(2*f5), "f"(2*f6), "f"(2*f7), "l"(values) : "memory");
  __threadfence();
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;"
    :: "f"(f0), "f"(f1), "f"(f2), "f"(f3), "f"(f4), "f"(f5), "f"(f6), "f"(f7), "l"(values) : "memory");
}
