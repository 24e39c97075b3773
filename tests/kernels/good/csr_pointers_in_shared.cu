// expect: passed
// workload: spmv float32
// Pointers into values kept in shared memory.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ const float* rows[128]; int row = blockIdx.x * 128 + threadIdx.x; rows[threadIdx.x ^ 1] = values + (row < num_rows ? row_offsets[row] : 0); __syncthreads(); if (row >= num_rows) return; const float* v = rows[threadIdx.x ^ 1]; float s = 0; for (int j = row_offsets[row], k = 0; j < row_offsets[row + 1]; j++, k++) s += v[k] * x[col_indices[j]]; y[row] = s;
}
