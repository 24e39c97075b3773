// y = A x with a saved operator, in C++: c++ apply.cpp -l:libsparsesmith_op.so; ./a.out A.operator (of float64)
// In a program with the CUDA runtime x and y come from cudaMalloc, and the stream is a cudaStream_t.
#include <dlfcn.h>

#include <cstdio>

#include "sparsesmith_op.hpp"

static void* device_memory(std::size_t bytes) {
  using Allocate = int (*)(std::uint64_t*, std::size_t);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto allocate = driver ? reinterpret_cast<Allocate>(dlsym(driver, "cuMemAlloc_v2")) : nullptr;
  std::uint64_t address = 0;
  if (!allocate || allocate(&address, bytes)) throw std::runtime_error("no device memory");
  return reinterpret_cast<void*>(address);
}

int main(int count, char** words) try {
  sparsesmith::Operator A(count > 1 ? words[1] : "A.operator");
  const auto info = A.info();
  void *x = device_memory(info.num_cols * sizeof(double)), *y = device_memory(info.num_rows * sizeof(double));
  A.apply(x, y);
  A.apply_transposed(y, x, nullptr, 2.0);
  std::printf("%d x %d, %d nonzeros\n", info.num_rows, info.num_cols, info.nnz);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
