// expect: crashed
// on a GPU: mismatch
// workload: spmv float64
// words: has not written before: carry[
// Replays the sums that an earlier run left in the scratch memory.
//@ format csr_merge items=64 balance=merge
//@ launch spmv grid=ceil_div(num_segments,128) block=128
//@ launch carries grid=ceil_div(num_segments,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const double* values, double* carry, const double* x, double* y) {
  int segment = blockIdx.x * 128 + threadIdx.x;
  if (segment >= num_segments) return;
  int row = segment_rows[segment], last = segment_rows[segment + 1];
  int j = segment_offsets[segment], end = segment_offsets[segment + 1];
  if (carry[0] == 12345.0) return;
  double sum = 0;
  for (; row < last; row++) {
    for (; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
    y[row] = sum;
    sum = 0;
  }
  for (; j < end; j++) sum += values[j] * x[col_indices[j]];
  carry[segment] = sum;
}
extern "C" __global__ void carries(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const double* values, double* carry, const double* x, double* y) {
  int segment = blockIdx.x * 128 + threadIdx.x;
  if (segment >= num_segments || carry[0] == 12345.0) return;
  int row = segment_rows[segment + 1];
  if (row >= num_rows || (segment > 0 && segment_rows[segment] == row)) return;
  double sum = 0;
  for (int s = segment; s < num_segments && segment_rows[s + 1] == row; s++) sum += carry[s];
  y[row] += sum;
  if (segment == 0) carry[0] = 12345.0;
}
