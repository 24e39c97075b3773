// expect: passed
// workload: spmm float32
// Rows of B that popular columns ask for stay in shared memory of a resident grid; long rows in pieces.
//@ format csr_tiles chunks=8 vector=1 max_rows=16 index=i32 long_rows=split hub_cols=192
//@ launch spmm grid=num_sms block=256 shared=num_hubs*32
//@ launch add_pieces grid=max(1,num_split_rows) block=256
extern "C" __global__ void __launch_bounds__(256, 1) spmm(int num_rows, int num_cols, int nnz, int num_tiles, int num_whole_tiles, int num_split_rows, int num_hubs, const int* __restrict__ hub_columns, const int* __restrict__ tile_rows, const unsigned short* __restrict__ local_offsets, const int* __restrict__ col_indices, const float* __restrict__ values, const int* __restrict__ split_rows, const int* __restrict__ split_pieces, float* __restrict__ carry, const float* __restrict__ b, float* __restrict__ c, int num_dense_cols) {
  extern __shared__ float4 hubs[];
  __shared__ float4 partials[256];
  __shared__ int bounds[136];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 2, part = lane % 2;
  int column = threadIdx.x % 2 * 4;
  int offsets = warp * 17;
  int tile = blockIdx.x * 8 + warp;
  __align__(16) int col[4];
  __align__(16) float value[4];
  auto fetch = [&](int slot) {
    #pragma unroll
    for (int u = 0; u < 4; u += 4) *(int4*)(col + u) = __ldg((const int4*)(col_indices + slot + u));
    #pragma unroll
    for (int u = 0; u < 4; u += 4) *(float4*)(value + u) = __ldg((const float4*)(values + slot + u));
  };
  if (tile < num_tiles) fetch(tile * 256 + group * 16);
  #pragma unroll 4
  for (int i = threadIdx.x; i < num_hubs * 2; i += 256)
    hubs[i] = *(const float4*)(b + (size_t)hub_columns[i / 2] * 8 + column);
  __syncthreads();
  #pragma unroll 1
  for (; tile < num_tiles; tile += gridDim.x * 8) {
    int2 range = *(const int2*)(tile_rows + 2 * tile);
    for (int i = lane; i < 17; i += 32) bounds[offsets + i] = local_offsets[tile * 17 + i];
    __syncwarp();
    int rows = range.y - range.x;
    int begin = min(group * 16, bounds[offsets + rows]);
    int row = 0;
    for (int above = rows; row < above;) {
      int middle = (row + above) / 2;
      if (bounds[offsets + middle + 1] > begin - (group == 0)) above = middle;
      else row = middle + 1;
    }
    float* out = tile < num_whole_tiles ? c + (size_t)range.x * 8 : carry + (size_t)(tile - num_whole_tiles) * 8;
    int cut = rows, left = row < rows ? bounds[offsets + row + 1] - begin : 32;
    int slot = tile * 256 + group * 16, following = slot + gridDim.x * 8 * 256;
    float4 sum = {}, head = {};
    auto leave = [&]() {
      if (bounds[offsets + row] < begin) {
        cut = row;
        head = sum;
      } else {
        __stcg((float4*)(out + row * 8 + column), sum);
      }
      sum = float4();
      row++;
      left = row < rows ? bounds[offsets + row + 1] - begin : 32;
    };
    #pragma unroll 1
    for (int batch = 0; batch < 16; batch += 4) {
      float4 right[4];
      float factor[4];
      int number[4];
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        number[u] = col[u];
        factor[u] = value[u];
        right[u] = float4();
        if (number[u] >= num_hubs) right[u] = *(const float4*)(b + (size_t)(number[u] - num_hubs) * 8 + column);
      }
      if (batch + 4 < 16) fetch(slot + batch + 4);
      else if (tile + gridDim.x * 8 < num_tiles) fetch(following);
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        while (left <= batch + u) leave();
        if (number[u] < num_hubs) right[u] = hubs[number[u] * 2 + part];
        sum.x += factor[u] * right[u].x; sum.y += factor[u] * right[u].y; sum.z += factor[u] * right[u].z; sum.w += factor[u] * right[u].w;
      }
    }
    while (left <= 16) leave();
    partials[threadIdx.x] = sum;
    __syncwarp();
    if (cut < rows) {
      row = cut;
      sum = head;
      for (int g = bounds[offsets + row] / 16; g < group; g++) {
        float4 before = partials[warp * 32 + g * 2 + part];
        sum.x += before.x; sum.y += before.y; sum.z += before.z; sum.w += before.w;
      }
      __stcg((float4*)(out + row * 8 + column), sum);
    }
    __syncwarp();
  }
}
extern "C" __global__ void __launch_bounds__(256) add_pieces(int num_rows, int num_cols, int nnz, int num_tiles, int num_whole_tiles, int num_split_rows, int num_hubs, const int* __restrict__ hub_columns, const int* __restrict__ tile_rows, const unsigned short* __restrict__ local_offsets, const int* __restrict__ col_indices, const float* __restrict__ values, const int* __restrict__ split_rows, const int* __restrict__ split_pieces, float* __restrict__ carry, const float* __restrict__ b, float* __restrict__ c, int num_dense_cols) {
  __shared__ float sums[256];
  int row = blockIdx.x, column = threadIdx.x % 8;
  if (row >= num_split_rows) return;
  float sum = 0;
  #pragma unroll 4
  for (int piece = split_pieces[row] + threadIdx.x / 8; piece < split_pieces[row + 1]; piece += 32)
    sum += carry[(size_t)piece * 8 + column];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 8) return;
  for (int g = 1; g < 32; g++) sum += sums[g * 8 + threadIdx.x];
  c[(size_t)split_rows[row] * 8 + column] = sum;
}
