// expect: passed
// workload: spmv float32
// Comments with quotes, brackets, fences and words that code may not hold.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void  spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  // it's "odd": /* not open, {[( unbalanced ``` ''' <<< asm("clock") __device__ int x; \\ done
  /* clock64() malloc printf // nested? " ' */ const int row = blockIdx.x * blockDim.x + threadIdx.x; // 100% – ünïcödé ✓
  if (row >= num_rows) return; float s = 0.f; for (int j = row_offsets[row]; j < row_offsets[row + 1]; ++j) { s += values[j] * x[col_indices[j]]; /* don't */ } y[row] = s; // end'
}
