/* y = A x and y = 2 A^T x with a saved operator: cc apply.c -l:libsparsesmith_op.so; ./a.out A.operator (of float64)
 * Device memory comes from the driver itself: no CUDA toolkit is needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparsesmith_op.h"

static void* device_memory(size_t bytes) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = driver ? dlsym(driver, "cuMemAlloc_v2") : NULL;
  int (*allocate)(uint64_t*, size_t);
  uint64_t address = 0;
  memcpy(&allocate, &found, sizeof found);
  return found && !allocate(&address, bytes) ? (void*)(uintptr_t)address : NULL;
}

static void check(int status) {
  if (!status) return;
  fprintf(stderr, "%s\n", sparsesmith_op_last_error());
  exit(1);
}

int main(int count, char** words) {
  sparsesmith_op* A;
  sparsesmith_op_info info;
  check(sparsesmith_op_load(count > 1 ? words[1] : NULL, &A));
  check(sparsesmith_op_describe(A, &info));
  void* x = device_memory((size_t)info.num_cols * sizeof(double));
  void* y = device_memory((size_t)info.num_rows * sizeof(double));
  check(sparsesmith_op_apply(A, 1.0, x, 0.0, y, NULL));
  check(sparsesmith_op_apply_transposed(A, 2.0, y, 0.0, x, NULL));
  printf("%d x %d, %d nonzeros\n", info.num_rows, info.num_cols, info.nnz);
  sparsesmith_op_destroy(A);
  return 0;
}
