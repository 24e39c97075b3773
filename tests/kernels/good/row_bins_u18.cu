// expect: passed
// workload: spmv float32
// Columns of 18 bits: four slots of a lane share a byte of high bits, which lies as many warps in as the columns do.
//@ format row_bins widths=2,8,4096 steps=8 index=u18
//@ launch spmv grid=ceil_div(num_warps,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_bins, int num_warps, const int* bins, const int* row_permutation, const unsigned char* high_bits, const unsigned short* col_indices, const float* values, const float* x, float* y) {
  int warp = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= num_warps) return;
  int bin = 0, warps = bins[4], steps = (bins[7] - bins[3]) / warps / 32, byte = 0;
  while (warp >= bins[4 * bin + 4]) {
    byte += warps * ((steps + 3) / 4) * 32;
    bin++;
    warps = bins[4 * bin + 4] - bins[4 * bin], steps = (bins[4 * bin + 7] - bins[4 * bin + 3]) / warps / 32;
  }
  int lanes = bins[4 * bin + 1], place = warp - bins[4 * bin];
  int slot = bins[4 * bin + 3] + place * steps * 32 + lane;
  byte += place * ((steps + 3) / 4) * 32 + lane;
  float sum = 0;
  for (int k = 0; k < steps; k++) {
    int high = high_bits[byte + k / 4 * 32] >> k % 4 * 2 & 3;
    sum += values[slot + k * 32] * x[high << 16 | col_indices[slot + k * 32]];
  }
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  int row = row_permutation[bins[4 * bin + 2] + place * (32 / lanes) + lane / lanes];
  if (lane % lanes == 0 && row >= 0) y[row] = sum;
}
