// expect: passed
// workload: spmm float32
// Cells and panels of B by asynchronous copies, two stages; parts added up.
//@ format cells strips=128 height=4 cell_cols=256 pad=2 parts=2
//@ launch spmm grid=num_windows*2 block=128 shared=2*(8192+cell_slots*17)
//@ launch add_parts grid=ceil_div(num_rows*2,256) block=256
__device__ __forceinline__ void copy(void* target, const void* source) {
  unsigned address = (unsigned)__cvta_generic_to_shared(target);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(address), "l"(source) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) spmm(int num_rows, int num_cols, int nnz, int num_windows, int num_panels, int cell_slots, const int* __restrict__ cell_offsets, const int* __restrict__ strip_offsets, const unsigned char* __restrict__ col_indices, const float* __restrict__ values, float* __restrict__ partial, const float* __restrict__ b, float* __restrict__ c, int num_dense_cols) {
  extern __shared__ __align__(16) unsigned char staged[];
  int window = blockIdx.x % num_windows;
  int group = threadIdx.x / 2, part = threadIdx.x / 2 % 1;
  int column = threadIdx.x % 2 * 4;
  int first = blockIdx.x / num_windows * ((num_panels + 1) / 2), last = min(first + (num_panels + 1) / 2, num_panels);
  int stage_bytes = 8192 + cell_slots * 17;
  float4 sums[8] = {};
  auto fetch = [&](int panel, unsigned char* stage) {
    int cell = window * num_panels + panel, begin = cell_offsets[cell], slots = cell_offsets[cell + 1] - begin;
    unsigned char* stage_values = stage + 8192;
    unsigned char* stage_cols = stage_values + cell_slots * 16;
    int rows = min(256, num_cols - panel * 256);
    for (int i = threadIdx.x; i < rows * 2; i += 128) {
      int row = panel * 256 + i / 2;
      copy(stage + i * 16, b + (size_t)row * 8 + i % 2 * 4);
    }
    for (int i = threadIdx.x; i < slots * 16 / 16; i += 128)
      copy(stage_values + i * 16, values + (size_t)begin * 4 + i * 4);
    for (int i = threadIdx.x; i < slots / 16; i += 128)
      copy(stage_cols + i * 16, col_indices + begin + i * 16);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  auto multiply = [&](const unsigned char* stage, const int* bound) {
    const float* right = (const float*)stage + column;
    const float* factors = (const float*)(stage + 8192);
    const unsigned char* cols = stage + 8192 + cell_slots * 16;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll 1
      for (int j = bound[i] + part * 2; j < bound[i + 1]; j += 2) {
        __align__(16) unsigned char col[2];
        __align__(16) float factor[8];
        float4 row[2];
        *(uchar2*)col = *(const uchar2*)(cols + j);
        #pragma unroll
        for (int k = 0; k < 8; k += 4) *(float4*)(factor + k) = *(const float4*)(factors + j * 4 + k);
        #pragma unroll
        for (int u = 0; u < 2; u++) row[u] = *(const float4*)(right + col[u] * 8);
        #pragma unroll
        for (int u = 0; u < 2; u++) {
          #pragma unroll
          for (int h = 0; h < 4; h++) {
            sums[i * 4 + h].x += factor[u * 4 + h] * row[u].x; sums[i * 4 + h].y += factor[u * 4 + h] * row[u].y; sums[i * 4 + h].z += factor[u * 4 + h] * row[u].z; sums[i * 4 + h].w += factor[u * 4 + h] * row[u].w;
          }
        }
      }
    }
  };
  auto bounds_of = [&](int panel, int* bound) {
    int start = (window * num_panels + panel) * 129 + group * 2;
    #pragma unroll
    for (int i = 0; i <= 2; i++) bound[i] = strip_offsets[start + i];
  };
  if (first < last) fetch(first, staged);
  for (int panel = first; panel < last; panel++) {
    int bound[2 + 1], odd = (panel - first) % 2;
    if (panel + 1 < last) fetch(panel + 1, staged + (1 - odd) * stage_bytes);
    bounds_of(panel, bound);
    if (panel + 1 < last)
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    multiply(staged + odd * stage_bytes, bound);
    __syncthreads();
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    float4 sum = sums[i];
    int row = window * 512 + group * 8 + i;
    if (part == 0 && row < num_rows) *(float4*)(partial + (size_t)(blockIdx.x / num_windows) * num_rows * 8 + (size_t)row * 8 + column) = sum;
  }
}
extern "C" __global__ void __launch_bounds__(256) add_parts(int num_rows, int num_cols, int nnz, int num_windows, int num_panels, int cell_slots, const int* __restrict__ cell_offsets, const int* __restrict__ strip_offsets, const unsigned char* __restrict__ col_indices, const float* __restrict__ values, float* __restrict__ partial, const float* __restrict__ b, float* __restrict__ c, int num_dense_cols) {
  int i = blockIdx.x * 256 + threadIdx.x;
  int count = num_rows * 2;
  if (i >= count) return;
  float4 sum = ((const float4*)partial)[i];
  #pragma unroll
  for (int p = 1; p < 2; p++) {
    float4 part = ((const float4*)partial)[(size_t)p * count + i];
    sum.x += part.x; sum.y += part.y; sum.z += part.z; sum.w += part.w;
  }
  (((float4*)c))[i] = sum;
}
