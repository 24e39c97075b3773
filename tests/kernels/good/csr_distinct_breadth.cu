// expect: passed
// workload: spmm float32
// A block of rows that a walk in breadth put side by side copies the rows of B that it needs to shared memory once.
//@ format csr_distinct nnz_per_block=256 max_rows=16 rows=breadth
//@ launch spmm grid=num_blocks block=64 shared=max_block_cols*32
extern "C" __global__ void __launch_bounds__(64, 1) spmm(int num_rows, int num_cols, int nnz, int num_blocks, int max_block_cols, const int* __restrict__ row_ids, const int* __restrict__ block_rows, const int* __restrict__ block_col_offsets, const int* __restrict__ block_cols, const int* __restrict__ row_offsets, const unsigned short* __restrict__ col_indices, const float* __restrict__ values, const float* __restrict__ b, float* __restrict__ c, int num_dense_cols) {
  extern __shared__ float4 rows_of_b[];
  __shared__ float factors[256];
  __shared__ unsigned short places[256];
  __shared__ int bounds[17];
  int block = blockIdx.x, group = threadIdx.x / 2, lane = threadIdx.x % 2;
  int column = threadIdx.x % 2 * 4;
  int first_row = block_rows[block], rows = block_rows[block + 1] - first_row;
  int first_col = block_col_offsets[block], cols = block_col_offsets[block + 1] - first_col;
  int first = row_offsets[first_row], count = row_offsets[first_row + rows] - first;
  for (int i = threadIdx.x; i <= rows; i += 64) bounds[i] = row_offsets[first_row + i] - first;
  #pragma unroll 4
  for (int i = threadIdx.x; i < count; i += 64) {
    places[i] = __ldg(col_indices + first + i);
    factors[i] = __ldg(values + first + i);
  }
  #pragma unroll 4
  for (int i = threadIdx.x; i < cols * 2; i += 64)
    rows_of_b[i] = *(const float4*)(b + (size_t)block_cols[first_col + i / 2] * 8 + column);
  __syncthreads();
  #pragma unroll 1
  for (int row = group; row < rows; row += 32) {
    float4 sum = {};
    int end = bounds[row + 1];
    #pragma unroll 4
    for (int j = bounds[row]; j < end; j++) {
      float4 right = rows_of_b[places[j] * 2 + lane];
      sum.x += factors[j] * right.x; sum.y += factors[j] * right.y; sum.z += factors[j] * right.z; sum.w += factors[j] * right.w;
    }
    __stcg((float4*)(c + (size_t)row_ids[first_row + row] * 8 + column), sum);
  }
}
