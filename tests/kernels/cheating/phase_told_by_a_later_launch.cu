// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: has not written before: carry[
// Finds in scratch, behind a launch that writes another part of it, that the product was done before.
//@ format csr_merge items=64
//@ launch first grid=1 block=1
//@ launch spmv grid=ceil_div(num_rows,128) block=128
//@ launch mark grid=1 block=1
extern "C" __global__ void first(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  if (num_segments > 1) carry[0] = 0;
}
extern "C" __global__ void mark(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  carry[num_segments - 1] = 12345.0f;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  if (carry[num_segments - 1] == 12345.0f) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
