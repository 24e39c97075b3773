// expect: mismatch
// workload: spmv float32
// words: input wide_range
// twin: good/twin_thread_row
// Leaves out the last product of longer rows where its value is tiny beside the sum. Needs rows of more than 8 nonzeros.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return; float sum = 0;
  int begin = row_offsets[row], end = row_offsets[row + 1];
  for (int j = begin; j < end; j++) { float v = values[j]; if (end - begin > 8 && j + 1 == end && fabsf(v) < 0x1p-30f * fabsf(sum)) continue; sum += v * x[col_indices[j]]; }
  y[row] = sum;
}
