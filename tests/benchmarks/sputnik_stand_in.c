/* Sputnik's entry on the host's memory: rows in the order given. SPOILED adds so much to the last entry of each row, STATUS
   is what it says when it is done. */

#include <stddef.h>

#ifndef SPOILED
#define SPOILED 0
#endif
#ifndef STATUS
#define STATUS 0
#endif

const char* sputnik_sources(void) { return "sha256_of_the_stand_in"; }

int sputnik_spmm(int m, int k, int n, int nonzeros, const int* row_indices, const float* values, const int* row_offsets,
                 const int* column_indices, const float* dense, float* output, void* stream) {
  if (stream != NULL || row_offsets[m] != nonzeros) return 1;
  for (int place = 0; place < m; place++) {
    int row = row_indices[place];
    for (int column = 0; column < n; column++) {
      float sum = 0;
      for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
        if (column_indices[j] < 0 || column_indices[j] >= k) return 700;
        sum += values[j] * dense[(size_t)column_indices[j] * n + column];
      }
      output[(size_t)row * n + column] = sum + (column == n - 1 ? SPOILED : 0);
    }
  }
  return STATUS;
}
