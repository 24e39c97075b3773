/* In the place of libcuda.so.1: device memory is the host's, and a launch is handed to whoever registered for it (the
 * test's PTX interpreter). Counts what is allocated. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  struct {
    int id;
    char padding[4];
    int value;
    char rest[60];
  }* attributes;
  unsigned num_attributes;
} Configuration;

typedef struct {
  char* image;
  char name[256];
  int shared_limit;
} Function;

typedef int (*OnLaunch)(const char* image, const char* name, const unsigned* grid, const unsigned* block,
                        unsigned shared_bytes, int is_early, void* stream, void** places);

static OnLaunch on_launch;
static int capability[2] = {9, 0};
static struct {
  uintptr_t address;
  size_t bytes;
} blocks[4096];
static int num_blocks, num_allocations, num_modules, num_retained, fail_allocation_after = -1;
static __thread void* current;

void stand_in_on_launch(OnLaunch function) { on_launch = function; }
void stand_in_capability(int major, int minor) { capability[0] = major, capability[1] = minor; }
void stand_in_fail_allocation_after(int count) { fail_allocation_after = count; }
int stand_in_allocations(void) { return num_allocations; }
int stand_in_held(void) { return num_blocks + num_modules + num_retained; }
void stand_in_forget_context(void) { current = NULL; }
size_t stand_in_bytes(uintptr_t address) {
  for (int i = 0; i < num_blocks; i++)
    if (blocks[i].address == address) return blocks[i].bytes;
  return 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuGetErrorString(int status, const char** words) {
  *words = status == 2 ? "out of memory" : status == 218 ? "a PTX JIT compilation failed" : "stand-in error";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetCount(int* count) { return *count = getenv("STAND_IN_NO_GPU") ? 0 : 1, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { return *value = capability[attribute - 75], device; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &num_retained, num_retained++, device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return num_retained--, device; }
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxSetCurrent(void* context) { return current = context, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxSynchronize(void) { return current ? 0 : 201; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (fail_allocation_after >= 0 && !fail_allocation_after--) return 2;
  void* place = NULL;
  if (posix_memalign(&place, 256, bytes + 256)) return 2;
  memset(place, 0xff, bytes);
  blocks[num_blocks].address = (uintptr_t)place, blocks[num_blocks++].bytes = bytes;
  num_allocations++;
  return *address = (uintptr_t)place, 0;
}
int cuMemFree_v2(uint64_t address) {
  for (int i = 0; i < num_blocks; i++)
    if (blocks[i].address == address) {
      blocks[i] = blocks[--num_blocks];
      free((void*)(uintptr_t)address);
      return 0;
    }
  return 1;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return memcpy((void*)(uintptr_t)to, from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return memcpy(to, (void*)(uintptr_t)from, bytes), 0; }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  if (!current) return 201;
  return (void)stream, memcpy((void*)(uintptr_t)to, (void*)(uintptr_t)from, bytes), 0;
}
int cuModuleLoadData(void** module, const void* image) {
  if (strstr(image, "not machine code")) return 218;
  return *module = strdup(image), num_modules++, 0;
}
int cuModuleUnload(void* module) { return free(module), num_modules--, 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  static Function functions[4096];
  static int count;
  Function* made = &functions[count++ % 4096];
  made->image = module;
  snprintf(made->name, sizeof made->name, "%s", name);
  return *function = made, 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  return ((Function*)function)->shared_limit = value, attribute != 8;
}
int cuLaunchKernelEx(const Configuration* to, void* function, void** places, void** extra) {
  const Function* kernel = function;
  if (!current || extra) return 201;
  if ((int)to->shared_bytes > kernel->shared_limit) return 1;
  int is_early = to->num_attributes && to->attributes->id == 6 && to->attributes->value == 1;
  if (!on_launch) return 0;
  return on_launch(kernel->image, kernel->name, to->grid, to->block, to->shared_bytes, is_early, to->stream, places);
}
