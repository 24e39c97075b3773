// expect: passed
// workload: spmv float32
// A thread a row: the four lanes that share it in turn, each with a stream of its own.
//@ format bitmap part_cols=256
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void __launch_bounds__(128) spmv(int num_rows, int num_cols, int nnz, int num_strips, int num_parts, int part_lines, const int* __restrict__ line_offsets, const int* __restrict__ quarter_chunks, const int* __restrict__ masks, const float* __restrict__ values, const float* __restrict__ x, float* __restrict__ y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  int half = row / 8 % 2;
  float sum = 0;
  for (int i = 0; i < num_parts * 4; i++) {
    int piece = row / 16 * num_parts + i / 4, lane = row % 8 * 4 + i % 4;
    const float* value = values + (size_t)line_offsets[piece] * 64 + 2 * lane + half;
    for (int chunk = 0; chunk < quarter_chunks[4 * piece + 3]; chunk++) {
      int bits = masks[(piece * 4 + chunk) * 32 + lane] >> (16 * half);
      int first = i / 4 * 256 + chunk * 64 + i % 4 * 4;
      for (int entry = 0; entry < 16; entry++) {
        int tile = entry / 4, pair = entry / 2 % 2, odd = entry % 2;
        if (bits >> (8 * odd + 2 * tile + pair) & 1) {
          value += 64;
          sum += *value * x[first + 16 * tile + 2 * pair + odd];
        }
      }
    }
  }
  y[row] = sum;
}
