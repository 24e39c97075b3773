// Sputnik's product in float32 behind a signature for ctypes: pointers of the device, the stream. Returns a cudaError_t.

#include "sputnik/spmm/cuda_spmm.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)

// Of the sources that it was compiled from.
EXPORTED const char* sputnik_sources() { return TEXT(SPUTNIK_SOURCES); }

EXPORTED int sputnik_spmm(int m, int k, int n, int nonzeros, const int* row_indices, const float* values,
                          const int* row_offsets, const int* column_indices, const float* dense, float* output,
                          cudaStream_t stream) {
  return sputnik::CudaSpmm(m, k, n, nonzeros, row_indices, values, row_offsets, column_indices, dense, output, stream);
}
