// expect: passed
// workload: spmv float32
// Merge segments with 16-bit columns relative to the segment; one thread a segment.
//@ format csr_merge items=32 balance=merge index=u16
//@ launch spmv grid=ceil_div(num_segments,64) block=64
//@ launch add_carry grid=ceil_div(num_segments,64) block=64
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* segment_col_base, const int* row_offsets, const unsigned short* col_indices, const float* values, float* carry, const float* x, float* y) {
  int segment = blockIdx.x * 64 + threadIdx.x;
  if (segment >= num_segments) return;
  const float* base = x + segment_col_base[segment];
  int j = segment_offsets[segment];
  float sum = 0;
  for (int row = segment_rows[segment]; row < segment_rows[segment + 1]; row++) {
    for (; j < row_offsets[row + 1]; j++) sum += values[j] * base[col_indices[j]];
    y[row] = sum;
    sum = 0;
  }
  for (; j < segment_offsets[segment + 1]; j++) sum += values[j] * base[col_indices[j]];
  carry[segment] = sum;
}
extern "C" __global__ void add_carry(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* segment_col_base, const int* row_offsets, const unsigned short* col_indices, const float* values, float* carry, const float* x, float* y) {
  int segment = blockIdx.x * 64 + threadIdx.x;
  if (segment >= num_segments) return;
  int row = segment_rows[segment + 1];
  if (row < num_rows) atomicAdd(y + row, carry[segment]);
}
