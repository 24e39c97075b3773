// expect: passed
// workload: spmv float32
// Launches of one kernel told apart by their grid's second extent; products pass through scratch.
//@ format panels panel_cols=64 parts=7 bins=5 rounds=2
//@ launch multiply grid=num_parts block=512 shared=64*4
//@ launch add grid=num_bins block=256 shared=(bin_slots+ceil_div(bin_slots,32))*4
//@ launch multiply grid=num_parts,2 block=512 shared=64*4
//@ launch add grid=num_bins,2 block=256 shared=(bin_slots+ceil_div(bin_slots,32))*4
extern "C" __global__ void __launch_bounds__(512, 1) multiply(int num_rows, int num_cols, int nnz, int num_panels, int num_parts, int num_bins, int bin_nnz, int bin_slots, const int* part_panels, const int* part_offsets, const int* segment_offsets, const int* bin_rows, const int* cut_rows, const int* row_offsets, const unsigned short* col_indices, const unsigned short* positions, const float* values, float* products, const float* x, float* y) {
  extern __shared__ float segment[];
  int round = gridDim.y - 1;
  if (blockIdx.y < round) return;
  for (int b = blockIdx.x * 512 + threadIdx.x; b < num_bins; b += num_parts * 512)
    if (cut_rows[round * num_bins + b] >= 0) y[cut_rows[round * num_bins + b]] = 0;
  int part = round * num_parts + blockIdx.x, begin = part_offsets[part], end = part_offsets[part + 1];
  if (begin == end) return;
  ushort4 col[2];
  float4 value[2];
  auto fetch = [&](int j) {
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      int k = min(j + u * 2048, end - 4);
      col[u] = __ldcs((const ushort4*)(col_indices + k));
      value[u] = __ldcs((const float4*)(values + k));
    }
  };
  fetch(begin + threadIdx.x * 4);
  int base = part_panels[part] * 64, count = min(64, num_cols - base);
  #pragma unroll 8
  for (int i = threadIdx.x; i < count; i += 512) segment[i] = x[base + i];
  __syncthreads();
  int origin = part_offsets[round * num_parts];
  #pragma unroll 1
  for (int j = begin + threadIdx.x * 4; j < end; j += 4096) {
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      int k = j + u * 2048;
      value[u].x *= segment[col[u].x];
      value[u].y *= segment[col[u].y];
      value[u].z *= segment[col[u].z];
      value[u].w *= segment[col[u].w];
      if (k < end) *(float4*)(products + k - origin) = value[u];
    }
    fetch(j + 4096);
  }
}
extern "C" __global__ void __launch_bounds__(256, 1) add(int num_rows, int num_cols, int nnz, int num_panels, int num_parts, int num_bins, int bin_nnz, int bin_slots, const int* part_panels, const int* part_offsets, const int* segment_offsets, const int* bin_rows, const int* cut_rows, const int* row_offsets, const unsigned short* col_indices, const unsigned short* positions, const float* values, float* products, const float* x, float* y) {
  extern __shared__ float sorted[];
  int round = gridDim.y - 1;
  if (blockIdx.y < round) return;
  int bin = round * num_bins + blockIdx.x, lane = threadIdx.x % 32;
  int first = bin_rows[2 * bin], last = bin_rows[2 * bin + 1];
  if (first == last) return;
  int begin = bin * bin_nnz, end = min(begin + bin_nnz, nnz);
  int row = first + threadIdx.x, head = row_offsets[min(row, last)], tail = row_offsets[min(row + 1, last)];
  int origin = part_offsets[round * num_parts];
  auto put = [&](int k, float product) { sorted[k + (k >> 5)] = product; };
  const int* starts = segment_offsets + (bin + round) * num_panels;
  for (int panel = threadIdx.x / 32; panel < num_panels; panel += 16) {
    int j[2], stop[2];
    bool more = true;
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      int p = min(panel + u * 8, num_panels - 1);
      j[u] = starts[p] + lane * 4;
      stop[u] = panel + u * 8 < num_panels ? starts[p + num_panels] : 0;
    }
    while (more) {
      ushort4 to[2];
      float4 product[2];
      #pragma unroll
      for (int u = 0; u < 2; u++)
        if (j[u] < stop[u]) {
          to[u] = __ldcs((const ushort4*)(positions + j[u]));
          product[u] = *(const float4*)(products + j[u] - origin);
        }
      more = false;
      #pragma unroll
      for (int u = 0; u < 2; u++) {
        if (j[u] < stop[u]) {
          put(to[u].x, product[u].x);
          put(to[u].y, product[u].y);
          put(to[u].z, product[u].z);
          put(to[u].w, product[u].w);
        }
        j[u] += 128;
        more |= j[u] < stop[u];
      }
    }
  }
  __syncthreads();
  for (int start = first; start < last; start += 256) {
    int from = max(head, begin) - begin, to = min(tail, end) - begin;
    float sum = 0;
    if (to - from <= 32)
      for (int k = from; k < to; k += 1) sum += sorted[k + (k >> 5)];
    unsigned pending = __ballot_sync(0xffffffff, to - from > 32);
    while (pending) {
      int source = __ffs(pending) - 1;
      pending &= pending - 1;
      int stop = __shfl_sync(0xffffffff, to, source);
      float part = 0;
      for (int k = __shfl_sync(0xffffffff, from, source) + lane; k < stop; k += 32) part += sorted[k + (k >> 5)];
      #pragma unroll
      for (int step = 16; step >= 1; step /= 2) part += __shfl_xor_sync(0xffffffff, part, step);
      if (lane == source) sum = part;
    }
    if (row < last) {
      if (head < begin || tail > end) atomicAdd(y + row, sum);
      else y[row] = sum;
    }
    row += 256;
    head = row_offsets[min(row, last)];
    tail = row_offsets[min(row + 1, last)];
  }
}
