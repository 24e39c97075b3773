// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: atomic operation on memory that the program has not written before
// Atomics onto an output that holds garbage.
//@ format coo
//@ launch spmv grid=ceil_div(nnz,256) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  int j = blockIdx.x * 256 + threadIdx.x;
  if (j < nnz) atomicAdd(y + row_indices[j], values[j] * x[col_indices[j]]);
}
