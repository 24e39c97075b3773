// expect: passed
// workload: spmv float64
// Rows and columns as a walk in breadth meets them: x is copied into that order first, y written where it belongs.
//@ format row_bins widths=2,8,4096 steps=2 numbering=breadth
//@ launch order_x grid=ceil_div(num_cols,128) block=128
//@ launch spmv grid=ceil_div(num_warps,4) block=128
extern "C" __global__ void order_x(int num_rows, int num_cols, int nnz, int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* col_order, const int* col_indices, const double* values, double* ordered_x, const double* x, double* y) {
  int place = blockIdx.x * 128 + threadIdx.x;
  if (place < num_cols) ordered_x[place] = x[col_order[place]];
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* col_order, const int* col_indices, const double* values, double* ordered_x, const double* x, double* y) {
  int warp = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= num_warps) return;
  int bin = 0;
  while (warp >= bins[4 * bin + 4]) bin++;
  int lanes = bins[4 * bin + 1];
  int warps = bins[4 * bin + 4] - bins[4 * bin], slots = bins[4 * bin + 7] - bins[4 * bin + 3];
  int place = warp - bins[4 * bin], begin = bins[4 * bin + 3] + place * (slots / warps);
  double sum = 0;
  for (int k = begin + lane; k < begin + slots / warps; k += 32) sum += values[k] * ordered_x[col_indices[k]];
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  int row = row_permutation[bins[4 * bin + 2] + place * (32 / lanes) + lane / lanes];
  if (lane % lanes == 0 && row >= 0) y[row] = sum;
}
