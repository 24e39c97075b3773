/* Two of the functions of cub_routines.cu on the host's memory: as they are called, so are the others. */

#include <stddef.h>
#include <string.h>

int cub_dot(void* scratch, size_t* bytes, const float* x, const float* y, float* out, int n, void* stream) {
  if (stream != NULL) return 1;
  if (scratch == NULL) {
    *bytes = 8;
    return 0;
  }
  if (*bytes != 8) return 2;
  *out = 0;
  for (int i = 0; i < n; i++) *out += x[i] * y[i];
  return 0;
}

int cub_top_k(void* scratch, size_t* bytes, const float* x, float* y, int n, int k, void* stream) {
  (void)stream;
  if (scratch == NULL) {
    *bytes = sizeof(float) * n;
    return 0;
  }
  float* left = scratch;
  memcpy(left, x, sizeof(float) * n);
  for (int place = 0; place < k; place++) {
    int largest = place;
    for (int i = place; i < n; i++)
      if (left[i] > left[largest]) largest = i;
    y[place] = left[largest];
    left[largest] = left[place];
  }
  return 0;
}

int cub_sort(void* scratch, size_t* bytes, const float* x, float* y, int n, void* stream) { return 700; }
