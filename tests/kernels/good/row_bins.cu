// expect: passed
// workload: spmv float32
// Rows by length: the bin of a warp is looked up, a shuffle joins the lanes of a row.
//@ format row_bins widths=2,8,4096 steps=2
//@ launch spmv grid=ceil_div(num_warps,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* col_indices, const float* values, const float* x, float* y) {
  int warp = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= num_warps) return;
  int bin = 0;
  while (warp >= bins[4 * bin + 4]) bin++;
  int lanes = bins[4 * bin + 1];
  int warps = bins[4 * bin + 4] - bins[4 * bin], slots = bins[4 * bin + 7] - bins[4 * bin + 3];
  int place = warp - bins[4 * bin], begin = bins[4 * bin + 3] + place * (slots / warps);
  float sum = 0;
  for (int k = begin + lane; k < begin + slots / warps; k += 32) sum += values[k] * x[col_indices[k]];
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  int row = row_permutation[bins[4 * bin + 2] + place * (32 / lanes) + lane / lanes];
  if (lane % lanes == 0 && row >= 0) y[row] = sum;
}
