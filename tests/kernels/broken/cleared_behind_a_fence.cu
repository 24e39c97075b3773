// expect: crashed
// on a GPU: mismatch|passed
// workload: spmv float32
// words: atomic operation on memory that the program has not written before
// As cleared_by_the_first_block, with a fence on both sides, which waits for nobody.
//@ format coo
//@ launch spmv grid=ceil_div(nnz,256)+1 block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  if (blockIdx.x == 0) {
    for (int row = threadIdx.x; row < num_rows; row += 256) y[row] = 0.0f;
    __threadfence();
    return;
  }
  __threadfence();
  int j = (blockIdx.x - 1) * 256 + threadIdx.x;
  if (j < nnz) atomicAdd(&y[row_indices[j]], values[j] * x[col_indices[j]]);
}
