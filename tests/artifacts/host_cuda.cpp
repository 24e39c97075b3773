// The part of the CUDA runtime that a generated header needs, in host memory: a launch prints what it was given.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <cuda_runtime.h>

std::string argument_kinds;  // One letter an argument: i int; I int*, S unsigned short*, F float*, D double*.

static std::map<const void*, std::size_t> allocated;
static std::map<const void*, std::string>& kernel_names() {  // Kernels are registered before main.
  static std::map<const void*, std::string> names;
  return names;
}
static struct { dim3 grid, block; std::size_t shared; } configuration;

int num_allocated() { return static_cast<int>(allocated.size()); }

template <typename Word>
static void print(void* const* argument, const char* format) {
  const Word* words = *static_cast<const Word* const*>(*argument);
  for (std::size_t k = 0; k < allocated.at(words) / sizeof(Word); ++k) std::printf(format, words[k]);
  std::printf("\n");
}

static cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared) {
  std::printf("launch %s %u %u %u %u %u %u %zu\n", kernel_names().at(kernel).c_str(), grid.x, grid.y, grid.z, block.x,
              block.y, block.z, shared);
  for (char kind : argument_kinds) {
    switch (kind) {
      case 'i': std::printf("%d\n", *static_cast<int*>(*arguments)); break;
      case 'I': print<int>(arguments, "%d "); break;
      case 'B': print<unsigned char>(arguments, "%hhu "); break;
      case 'S': print<unsigned short>(arguments, "%hu "); break;
      case 'F': print<float>(arguments, "%.9g "); break;
      case 'D': print<double>(arguments, "%.17g "); break;
    }
    ++arguments;
  }
  return cudaSuccess;
}

extern "C" {
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = std::calloc(bytes, 1);
  allocated[*pointer] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  allocated.erase(pointer);
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes > allocated.at(to)) std::abort();
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  std::printf("shared %s %d\n", kernel_names().at(kernel).c_str(), value);
  return cudaSuccess;
}
void** __cudaRegisterFatBinary(void*) { static void* handle = nullptr; return &handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernel_names()[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t) {
  configuration = {grid, block, shared};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void*) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(void** kernel, const void* host) {
  *kernel = const_cast<void*>(host);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* launched, const void* kernel, void** arguments) {
  return launch(kernel, launched->gridDim, launched->blockDim, arguments, launched->dynamicSmemBytes);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared);
}
}
