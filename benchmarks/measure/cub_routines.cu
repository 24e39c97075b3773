// What CUB offers for tasks, and the driver's copy, behind one signature each: temporary storage (null: only its size is
// asked for), its size, the operands in the task's order, its sizes, the stream. Each returns a cudaError_t.

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#if __has_include(<cub/device/device_topk.cuh>)
#include <cub/device/device_topk.cuh>
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/output_ordering.h>
#include <cuda/__execution/require.h>
#include <cuda/std/__execution/env.h>
#include <cuda/stream_ref>
#endif

#define EXPORTED extern "C" __attribute__((visibility("default"))) int

struct Product {
  const float *x, *y;
  __host__ __device__ float operator()(int i) const { return x[i] * y[i]; }
};

struct MeanSquare {
  const float *x, *y;
  float share;
  __host__ __device__ float operator()(int i) const { return (x[i] - y[i]) * (x[i] - y[i]) * share; }
};

struct Share {
  const float* x;
  float share;
  __host__ __device__ float operator()(int i) const { return x[i] * share; }
};

template <class Term>
static int total(void* scratch, size_t* bytes, Term term, float* out, int n, cudaStream_t stream) {
  auto terms = thrust::make_transform_iterator(thrust::counting_iterator<int>(0), term);
  return cub::DeviceReduce::Sum(scratch, *bytes, terms, out, n, stream);
}

EXPORTED cub_sum(void* scratch, size_t* bytes, const float* x, float* out, int n, cudaStream_t stream) {
  return cub::DeviceReduce::Sum(scratch, *bytes, x, out, n, stream);
}

EXPORTED cub_dot(
    void* scratch, size_t* bytes, const float* x, const float* y, float* out, int n, cudaStream_t stream) {
  return total(scratch, bytes, Product{x, y}, out, n, stream);
}

EXPORTED cub_mse(
    void* scratch, size_t* bytes, const float* x, const float* y, float* out, int n, cudaStream_t stream) {
  return total(scratch, bytes, MeanSquare{x, y, 1.0f / n}, out, n, stream);
}

EXPORTED cub_monte_carlo(void* scratch, size_t* bytes, const float* values, float* out, int n, cudaStream_t stream) {
  return total(scratch, bytes, Share{values, 1.0f / n}, out, n, stream);
}

EXPORTED cub_prefix_sum(void* scratch, size_t* bytes, const float* x, float* y, int n, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(scratch, *bytes, x, y, n, stream);
}

EXPORTED cub_sort(void* scratch, size_t* bytes, const float* x, float* y, int n, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortKeys(scratch, *bytes, x, y, n, 0, 32, stream);
}

EXPORTED cub_histogram(
    void* scratch, size_t* bytes, const int* keys, int* counts, int n, int bins, cudaStream_t stream) {
  return cub::DeviceHistogram::HistogramEven(scratch, *bytes, keys, counts, bins + 1, 0, bins, n, stream);
}

#if __has_include(<cub/device/device_topk.cuh>)
// The k largest in any order, then those in order.
EXPORTED cub_top_k(void* scratch, size_t* bytes, const float* x, float* y, int n, int k, cudaStream_t stream) {
  size_t held = (size_t(k) * sizeof(float) + 255) / 256 * 256, selecting = 0, sorting = 0;
  auto ordering = cuda::execution::require(
      cuda::execution::determinism::not_guaranteed, cuda::execution::output_ordering::unsorted);
  auto how = cuda::std::execution::env{cuda::stream_ref{stream}, ordering};
  float* found = static_cast<float*>(scratch);
  void* rest = scratch == nullptr ? nullptr : static_cast<char*>(scratch) + held;
  cub::DeviceTopK::MaxKeys(nullptr, selecting, x, found, n, k, how);
  cub::DeviceRadixSort::SortKeysDescending(nullptr, sorting, found, y, k, 0, 32, stream);
  if (scratch == nullptr) {
    *bytes = held + (selecting > sorting ? selecting : sorting);
    return cudaSuccess;
  }
  int status = cub::DeviceTopK::MaxKeys(rest, selecting, x, found, n, k, how);
  return status ? status : cub::DeviceRadixSort::SortKeysDescending(rest, sorting, found, y, k, 0, 32, stream);
}
#else
// An older CUB has no top-k: everything in order, of which the first k are kept.
EXPORTED cub_top_k(void* scratch, size_t* bytes, const float* x, float* y, int n, int k, cudaStream_t stream) {
  size_t held = (size_t(n) * sizeof(float) + 255) / 256 * 256, sorting = 0;
  float* found = static_cast<float*>(scratch);
  cub::DeviceRadixSort::SortKeysDescending(nullptr, sorting, x, found, n, 0, 32, stream);
  if (scratch == nullptr) {
    *bytes = held + sorting;
    return cudaSuccess;
  }
  void* rest = static_cast<char*>(scratch) + held;
  int status = cub::DeviceRadixSort::SortKeysDescending(rest, sorting, x, found, n, 0, 32, stream);
  return status ? status : cudaMemcpyAsync(y, found, size_t(k) * sizeof(float), cudaMemcpyDeviceToDevice, stream);
}
#endif

EXPORTED driver_copy(void*, size_t* bytes, const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (*bytes == 0) {
    *bytes = 1;
    return cudaSuccess;
  }
  return cudaMemcpyAsync(y, x, size_t(rows) * cols * sizeof(float), cudaMemcpyDeviceToDevice, stream);
}
