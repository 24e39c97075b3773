/* Stands in for libcuda where a test has no GPU: keeps host memory for device memory and writes down each call, in the working
 * directory. A launch of a kernel named `fails` ends the context, as one that breaks memory does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

static FILE *calls(void) { return fopen("calls", "a"); }

#define SAY(...) do { FILE *file = calls(); fprintf(file, __VA_ARGS__); fclose(file); } while (0)

int cuInit(unsigned flags) { return getenv("CUDA_VISIBLE_DEVICES") == NULL ? 100 : (int)flags; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = calloc(1, 1); (void)device; return 0; }
int cuCtxSetCurrent(void *context) { return context == NULL; }

int cuModuleLoadData(void **module, const char *image) {
  *module = strdup(image);
  SAY("module %s\n", image);
  return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = strdup(name);
  return strcmp(name, "missing") == 0 ? 500 : 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  SAY("attribute %s %d %d\n", (char *)function, attribute, value);
  return 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  *address = (unsigned long long)malloc(bytes);
  SAY("alloc %zu\n", bytes);
  return 0;
}

int cuMemcpyHtoD_v2(unsigned long long address, const void *source, size_t bytes) {
  memcpy((void *)address, source, bytes);
  SAY("copy %zu\n", bytes);
  return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
  (void)stream, (void)extra;
  SAY("launch %s (%u,%u,%u) (%u,%u,%u) %u, first argument %d\n", (char *)function, gx, gy, gz, bx, by, bz, shared, *(int *)parameters[0]);
  failed |= strcmp(function, "fails") == 0;
  return 0;
}

int cuCtxSynchronize(void) { return failed ? 719 : 0; }

int cuGetErrorName(int status, const char **name) {
  *name = status == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : status == 500 ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_NO_DEVICE";
  return 0;
}
