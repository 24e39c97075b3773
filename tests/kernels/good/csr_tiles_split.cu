// expect: passed
// workload: spmv float32
// A tile a block, addressed by its number alone; rows longer than a tile go through the carry, piece by piece.
//@ format csr_tiles chunks=2 vector=2 max_rows=16 order=column rows=length long_rows=split
//@ launch spmv grid=num_tiles block=64
//@ launch add grid=max(num_split_rows,1) block=1
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_tiles, int num_whole_tiles, int num_split_rows, const int* row_ids, const unsigned short* local_offsets, const int* col_indices, const unsigned short* places, const float* values, const int* split_rows, const int* split_pieces, float* carry, const float* x, float* y) {
  __shared__ float products[128];
  int tile = blockIdx.x, slot = tile * 128 + threadIdx.x * 2;
  int2 col = *(const int2*)(col_indices + slot);
  float2 value = *(const float2*)(values + slot);
  ushort2 place = *(const ushort2*)(places + slot);
  products[place.x] = value.x * x[col.x];
  products[place.y] = value.y * x[col.y];
  __syncthreads();
  bool whole = tile < num_whole_tiles;
  int rows = whole ? 16 : 1;
  if (threadIdx.x >= rows) return;
  const unsigned short* bounds = local_offsets + tile * 17 + threadIdx.x;
  float sum = 0;
  for (int k = bounds[0]; k < bounds[1]; k++) sum += products[k];
  int row = row_ids[tile * 16 + threadIdx.x];
  if (!whole) carry[tile - num_whole_tiles] = sum;
  else if (row >= 0) y[row] = sum;
}
extern "C" __global__ void add(int num_rows, int num_cols, int nnz, int num_tiles, int num_whole_tiles, int num_split_rows, const int* row_ids, const unsigned short* local_offsets, const int* col_indices, const unsigned short* places, const float* values, const int* split_rows, const int* split_pieces, float* carry, const float* x, float* y) {
  int row = blockIdx.x;
  if (row >= num_split_rows) return;
  float sum = 0;
  for (int piece = split_pieces[row]; piece < split_pieces[row + 1]; piece++) sum += carry[piece];
  y[split_rows[row]] = sum;
}
