// expect: crashed
// on a GPU: timed_out
// workload: spmv float32
// words: has not written before: y[
// Every block waits for the result of the last one, which never gets its turn.
//@ format csr
//@ launch spmv grid=num_sms*64 block=32
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = (blockIdx.x * 32 + threadIdx.x) % num_rows;
  volatile float* last = y;
  if (blockIdx.x + 1 < gridDim.x) while (last[num_rows - 1] != last[num_rows - 1]) __nanosleep(100);
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
