// Strategies beside the families' own way (docs/decisions/strategies-tried.md). Run it twice and compare:
//   nvcc -O3 -std=c++17 -arch=sm_90 benchmarks/tried/strategies.cu -o /tmp/strategies && /tmp/strategies
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

static void check(cudaError_t status) {
  if (status != cudaSuccess) {
    std::printf("%s\n", cudaGetErrorString(status));
    std::exit(1);
  }
}

struct Time {
  double us, spread;  // median of the graphs, 10th to 90th percentile over the median
};

static Time measure(const std::function<void(cudaStream_t)>& launch) {
  constexpr int products = 20, graphs = 41;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaEvent_t before, after;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < products; i++) launch(stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaEventCreate(&before));
  check(cudaEventCreate(&after));
  for (int i = 0; i < 10; i++) check(cudaGraphLaunch(executable, stream));
  std::vector<double> times;
  for (int i = 0; i < graphs; i++) {
    float ms;
    check(cudaEventRecord(before, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(after, stream));
    check(cudaEventSynchronize(after));
    check(cudaEventElapsedTime(&ms, before, after));
    times.push_back(ms * 1e3 / products);
  }
  std::sort(times.begin(), times.end());
  return {times[graphs / 2], (times[graphs * 9 / 10] - times[graphs / 10]) / times[graphs / 2]};
}

static void report(const char* what, Time time, double bytes) {
  std::printf("%-44s %8.2f us, spread %.3f, %5.0f GB/s\n", what, time.us, time.spread, bytes / time.us / 1e3);
}

template <typename T>
static T* upload(const std::vector<T>& host) {
  T* device;
  check(cudaMalloc(&device, host.size() * sizeof(T)));
  check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

static std::mt19937 generator(1);

// -- fp64 tensor cores: slices of 8 rows; a lane holds entry (lane / 4, lane % 4) of each step ------------------------
constexpr int batch = 4;

template <bool tensor_cores>
__global__ void slices(int num_slices, const int* offsets, const int* cols, const double* values, const double* x, double* y) {
  int slice = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (slice >= num_slices) return;
  double even = 0, odd = 0;
  int end = offsets[slice + 1];
  for (int j = offsets[slice] + lane; j < end; j += 32 * batch) {
    int col[batch];
    double value[batch];
#pragma unroll
    for (int u = 0; u < batch; u++) {
      int k = min(j + u * 32, end - 32 + lane);
      col[u] = __ldcs(cols + k);
      value[u] = j + u * 32 < end ? __ldcs(values + k) : 0;
    }
#pragma unroll
    for (int u = 0; u < batch; u++) {
      double right = x[col[u]];
      if (tensor_cores)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(even), "+d"(odd) : "d"(value[u]), "d"(right));
      else
        even += value[u] * right;
    }
  }
  int row = lane / 4;
  if (tensor_cores) {  // the diagonal of the 8 x 8 result
    if (lane % 4 == row / 2) y[slice * 8 + row] = row % 2 ? odd : even;
    return;
  }
  even += __shfl_xor_sync(~0u, even, 1);
  even += __shfl_xor_sync(~0u, even, 2);
  if (lane % 4 == 0) y[slice * 8 + row] = even;
}

static void try_tensor_cores() {
  constexpr int rows = 400000, row_length = 28, num_slices = rows / 8;
  std::vector<int> offsets(num_slices + 1), cols(size_t(rows) * row_length);
  for (int s = 0; s <= num_slices; s++) offsets[s] = s * 8 * row_length;
  for (size_t k = 0; k < cols.size(); k++) {
    int row = int(k / (8 * row_length)) * 8 + int(k % 32) / 4;
    cols[k] = std::clamp(row - 100 + int(generator() % 200), 0, rows - 1);
  }
  int *device_offsets = upload(offsets), *device_cols = upload(cols);
  double* values = upload(std::vector<double>(cols.size(), 0.5));
  double *x = upload(std::vector<double>(rows, 1.25)), *y = upload(std::vector<double>(rows));
  double bytes = cols.size() * 12.0 + rows * 16.0;
  int grid = (num_slices * 32 + 127) / 128;
  report("fp64 multiply-adds", measure([&](cudaStream_t stream) {
    slices<false><<<grid, 128, 0, stream>>>(num_slices, device_offsets, device_cols, values, x, y);
  }), bytes);
  report("fp64 tensor cores", measure([&](cudaStream_t stream) {
    slices<true><<<grid, 128, 0, stream>>>(num_slices, device_offsets, device_cols, values, x, y);
  }), bytes);
}

// -- asynchronous copies: tiles of 2048 nonzeros, 8 a row, 256 threads ------------------------------------------------
constexpr int tile_size = 2048, vectors = tile_size / 4;

static __device__ float4 products(int4 col, float4 value, const float* x) {
  return {value.x * x[col.x], value.y * x[col.y], value.z * x[col.z], value.w * x[col.w]};
}

static __device__ float row_sum(const float* staged) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; k++) sum += staged[threadIdx.x * 8 + k];
  return sum;
}

__global__ void __launch_bounds__(256) tiles_in_registers(const int4* cols, const float4* values, const float* x, float* y) {
  __shared__ float4 staged[vectors];
  int tile = blockIdx.x;
  int4 col[2];
  float4 value[2];
#pragma unroll
  for (int u = 0; u < 2; u++) {
    col[u] = __ldcs(cols + tile * vectors + u * 256 + threadIdx.x);
    value[u] = __ldcs(values + tile * vectors + u * 256 + threadIdx.x);
  }
#pragma unroll
  for (int u = 0; u < 2; u++) staged[u * 256 + threadIdx.x] = products(col[u], value[u], x);
  __syncthreads();
  y[tile * 256 + threadIdx.x] = row_sum((const float*)staged);
}

static __device__ unsigned shared_address(const void* pointer) { return unsigned(__cvta_generic_to_shared(pointer)); }

static __device__ void copy_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

static __device__ void copy_bulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

template <int stages, bool bulk>
__global__ void __launch_bounds__(256) tiles_copied(int num_tiles, const int4* cols, const float4* values, const float* x, float* y) {
  extern __shared__ __align__(128) char memory[];
  int4* staged_cols = (int4*)memory;
  float4* staged_values = (float4*)(memory + stages * tile_size * 4);
  float4* staged = (float4*)(memory + stages * tile_size * 8);
  __shared__ uint64_t barriers[stages];
  if (bulk && threadIdx.x == 0)
    for (int s = 0; s < stages; s++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barriers + s)));
  __syncthreads();
  auto fetch = [&](int tile, int stage) {
    if (bulk && threadIdx.x == 0 && tile < num_tiles) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barriers + stage)), "r"(tile_size * 8));
      copy_bulk(staged_cols + stage * vectors, cols + tile * vectors, tile_size * 4, barriers + stage);
      copy_bulk(staged_values + stage * vectors, values + tile * vectors, tile_size * 4, barriers + stage);
    }
    if (bulk) return;
    if (tile < num_tiles)
      for (int u = threadIdx.x; u < vectors; u += 256) {
        copy_16(staged_cols + stage * vectors + u, cols + tile * vectors + u);
        copy_16(staged_values + stage * vectors + u, values + tile * vectors + u);
      }
    asm volatile("cp.async.commit_group;");
  };
  for (int s = 0; s < stages - 1; s++) fetch(blockIdx.x + s * gridDim.x, s);
  int stage = 0, phase = 0;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    fetch(tile + (stages - 1) * gridDim.x, (stage + stages - 1) % stages);
    if (bulk) {
      unsigned done = 0;
      while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barriers + stage)), "r"(phase) : "memory");
    } else {
      asm volatile("cp.async.wait_group %0;" ::"n"(stages - 1));
      __syncthreads();
    }
    for (int u = threadIdx.x; u < vectors; u += 256)
      staged[u] = products(staged_cols[stage * vectors + u], staged_values[stage * vectors + u], x);
    __syncthreads();
    y[tile * 256 + threadIdx.x] = row_sum((const float*)staged);
    __syncthreads();
    stage = (stage + 1) % stages;
    phase ^= stage == 0;
  }
}

template <int stages, bool bulk>
static void try_copies(const char* what, int num_tiles, const int4* cols, const float4* values, const float* x, float* y, double bytes) {
  constexpr int shared_bytes = stages * tile_size * 8 + tile_size * 4;
  auto kernel = tiles_copied<stages, bulk>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  for (int blocks_per_sm : {2, 3, 4, 5}) {
    if (blocks_per_sm * shared_bytes > 227 * 1024) continue;
    std::printf("%d blocks/SM, %d stages, ", blocks_per_sm, stages);
    report(what, measure([&](cudaStream_t stream) {
      kernel<<<132 * blocks_per_sm, 256, shared_bytes, stream>>>(num_tiles, cols, values, x, y);
    }), bytes);
  }
}

static void try_asynchronous_copies() {
  constexpr int num_tiles = 8192, rows = num_tiles * 256;
  std::vector<int> cols(size_t(num_tiles) * tile_size);
  for (size_t k = 0; k < cols.size(); k++) cols[k] = std::clamp(int(k / 8) - 16 + int(generator() % 32), 0, rows - 1);
  const int4* device_cols = (const int4*)upload(cols);
  const float4* values = (const float4*)upload(std::vector<float>(cols.size(), 0.5f));
  float *x = upload(std::vector<float>(rows, 1.25f)), *y = upload(std::vector<float>(rows));
  double bytes = cols.size() * 8.0 + rows * 8.0;
  report("tiles in registers", measure([&](cudaStream_t stream) {
    tiles_in_registers<<<num_tiles, 256, 0, stream>>>(device_cols, values, x, y);
  }), bytes);
  try_copies<2, false>("cp.async", num_tiles, device_cols, values, x, y, bytes);
  try_copies<3, false>("cp.async", num_tiles, device_cols, values, x, y, bytes);
  try_copies<2, true>("bulk copies", num_tiles, device_cols, values, x, y, bytes);
  try_copies<3, true>("bulk copies", num_tiles, device_cols, values, x, y, bytes);
}

// -- cache policies: 16 random columns a row, a thread a row ----------------------------------------------------------
enum Policy { plain, streamed, evict_first };

template <Policy policy>
static __device__ int read_matrix(const int* address, uint64_t first) {
  int word;
  if (policy == plain) return *address;
  if (policy == streamed) return __ldcs(address);
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.s32 %0, [%1], %2;" : "=r"(word) : "l"(address), "l"(first));
  return word;
}

template <Policy policy, bool keep_x>
__global__ void __launch_bounds__(128) gather(int rows, const int* cols, const int* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows) return;
  uint64_t first, last;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  int col[16];
  float value[16], sum = 0;
#pragma unroll
  for (int k = 0; k < 16; k++) {
    col[k] = read_matrix<policy>(cols + k * rows + row, first);
    value[k] = __int_as_float(read_matrix<policy>(values + k * rows + row, first));
  }
#pragma unroll
  for (int k = 0; k < 16; k++) {
    float right;
    if (keep_x)
      asm volatile("ld.global.nc.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(right) : "l"(x + col[k]), "l"(last));
    else
      right = x[col[k]];
    sum += value[k] * right;
  }
  y[row] = sum;
}

template <Policy policy, bool keep_x>
static void try_policy(const char* what, int rows, const int* cols, const int* values, const float* x, float* y) {
  report(what, measure([&](cudaStream_t stream) {
    gather<policy, keep_x><<<(rows + 127) / 128, 128, 0, stream>>>(rows, cols, values, x, y);
  }), rows * 16.0 * 8.0 + rows * 8.0);
}

static void try_cache_policies() {
  for (int rows : {500000, 1000000, 4000000}) {
    std::vector<int> cols(size_t(rows) * 16);
    for (int& col : cols) col = generator() % rows;
    int *device_cols = upload(cols), *values = upload(std::vector<int>(cols.size(), 0x3f000000));
    float *x = upload(std::vector<float>(rows, 1.25f)), *y = upload(std::vector<float>(rows));
    std::printf("%d rows:\n", rows);
    try_policy<plain, false>("  plain loads", rows, device_cols, values, x, y);
    try_policy<streamed, false>("  A streamed (__ldcs)", rows, device_cols, values, x, y);
    try_policy<evict_first, false>("  A evict_first, no L1", rows, device_cols, values, x, y);
    try_policy<evict_first, true>("  A evict_first, no L1, x evict_last", rows, device_cols, values, x, y);
    try_policy<streamed, true>("  A streamed, x evict_last", rows, device_cols, values, x, y);
    for (void* pointer : {(void*)device_cols, (void*)values, (void*)x, (void*)y}) check(cudaFree(pointer));
  }
}

int main() {
  try_tensor_cores();
  try_asynchronous_copies();
  try_cache_policies();
}
