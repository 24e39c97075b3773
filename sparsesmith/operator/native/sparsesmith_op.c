/* See sparsesmith_op.h. Plain C11 with dlopen; the layout of a saved operator is that of sparsesmith/operator/file.py,
 * the plan's lines are those of sparsesmith/operator/image.py. */
#define _GNU_SOURCE
#include "sparsesmith_op.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, MAX_ARGUMENTS = 64, MAX_LAUNCHES = 64, MAX_SECTIONS = 256, NAME_BYTES = 40, HEAD_BYTES = 24 };

/* What went wrong */

static _Thread_local char last_error[1024];

const char* sparsesmith_op_last_error(void) { return last_error; }

int sparsesmith_op_abi(void) { return SPARSESMITH_OP_ABI; }

__attribute__((format(printf, 2, 3))) static int refuse(int status, const char* format, ...) {
  va_list words;
  va_start(words, format);
  vsnprintf(last_error, sizeof last_error, format, words);
  va_end(words);
  return status;
}

/* The driver: CUDA driver API, by the names that its header maps to. */

typedef uint64_t Address;

typedef struct {
  int id;
  char padding[4];
  int value;
  char rest[60];
} LaunchAttribute; /* CUlaunchAttribute */

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
} LaunchConfiguration; /* CUlaunchConfig */

enum {
  PROGRAMMATIC_STREAM_SERIALIZATION = 6, /* CU_LAUNCH_ATTRIBUTE_... */
  MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,     /* CU_FUNC_ATTRIBUTE_... */
  COMPUTE_CAPABILITY_MAJOR = 75,         /* CU_DEVICE_ATTRIBUTE_... */
  COMPUTE_CAPABILITY_MINOR = 76,
  ERROR_OUT_OF_MEMORY = 2, /* CUDA_ERROR_... */
  ERROR_INVALID_CONTEXT = 201
};

static struct {
  int (*init)(unsigned);
  int (*error_string)(int, const char**);
  int (*device_get)(int*, int);
  int (*device_count)(int*);
  int (*device_attribute)(int*, int, int);
  int (*primary_retain)(void**, int);
  int (*primary_release)(int);
  int (*current)(void**);
  int (*set_current)(void*);
  int (*current_device)(int*);
  int (*synchronize)(void);
  int (*allocate)(Address*, size_t);
  int (*release)(Address);
  int (*upload)(Address, const void*, size_t);
  int (*download)(void*, Address, size_t);
  int (*copy_async)(Address, Address, size_t, void*);
  int (*load)(void**, const void*);
  int (*unload)(void*);
  int (*function)(void**, void*, const char*);
  int (*set_attribute)(void*, int, int);
  int (*launch)(const LaunchConfiguration*, void*, void**, void**);
} driver;

static char driver_trouble[512];
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void open_driver(void) {
  const struct {
    const char* name;
    void* place;
  } functions[] = {
      {"cuInit", &driver.init},
      {"cuGetErrorString", &driver.error_string},
      {"cuDeviceGet", &driver.device_get},
      {"cuDeviceGetCount", &driver.device_count},
      {"cuDeviceGetAttribute", &driver.device_attribute},
      {"cuDevicePrimaryCtxRetain", &driver.primary_retain},
      {"cuDevicePrimaryCtxRelease_v2", &driver.primary_release},
      {"cuCtxGetCurrent", &driver.current},
      {"cuCtxSetCurrent", &driver.set_current},
      {"cuCtxGetDevice", &driver.current_device},
      {"cuCtxSynchronize", &driver.synchronize},
      {"cuMemAlloc_v2", &driver.allocate},
      {"cuMemFree_v2", &driver.release},
      {"cuMemcpyHtoD_v2", &driver.upload},
      {"cuMemcpyDtoH_v2", &driver.download},
      {"cuMemcpyDtoDAsync_v2", &driver.copy_async},
      {"cuModuleLoadData", &driver.load},
      {"cuModuleUnload", &driver.unload},
      {"cuModuleGetFunction", &driver.function},
      {"cuFuncSetAttribute", &driver.set_attribute},
      {"cuLaunchKernelEx", &driver.launch},
  };
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(driver_trouble, sizeof driver_trouble, "no NVIDIA driver: %s", dlerror());
    return;
  }
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void* found = dlsym(library, functions[i].name);
    if (!found) {
      snprintf(driver_trouble, sizeof driver_trouble, "the NVIDIA driver is too old: it has no %s (CUDA 12 has)",
               functions[i].name);
      return;
    }
    memcpy(functions[i].place, &found, sizeof found);
  }
  int num_devices = 0, status = driver.init(0);
  if (!status) status = driver.device_count(&num_devices);
  if (status || !num_devices)
    snprintf(driver_trouble, sizeof driver_trouble, "the NVIDIA driver finds no GPU (cuInit and cuDeviceGetCount: %d)",
             status);
}

static int need_driver(void) {
  pthread_once(&driver_once, open_driver);
  return driver_trouble[0] ? refuse(SPARSESMITH_NO_DRIVER, "%s", driver_trouble) : SPARSESMITH_OK;
}

static int driver_failed(int status, const char* what) {
  const char* words = NULL;
  if (driver.error_string(status, &words) || !words) words = "unknown error";
  int kind = status == ERROR_OUT_OF_MEMORY ? SPARSESMITH_OUT_OF_MEMORY : SPARSESMITH_DRIVER_FAILED;
  return refuse(kind, "%s: %s (CUDA error %d)", what, words, status);
}

/* A call of the driver whose failure ends the function. */
#define CHECKED(call, what)                                          \
  do {                                                               \
    int checked_status = (call);                                     \
    if (checked_status) return driver_failed(checked_status, what);  \
  } while (0)

#define PASSED(call)                                \
  do {                                              \
    int passed_status = (call);                     \
    if (passed_status) return passed_status;        \
  } while (0)

/* The operator */

typedef struct {
  void *plain, *scaled; /* CUfunction */
  char name[256];
  LaunchConfiguration configuration;
} Launch;

typedef struct Section Section;

typedef struct {
  int is_there, has_scratch, is_scaled;
  int num_arguments, num_launches;
  int x_at, y_at, values_at;        /* places among the arguments; values -1: fixed */
  int64_t num_inputs, num_results;  /* elements of x and of y */
  Address slots[MAX_ARGUMENTS];     /* what is passed: a size, or an address */
  size_t slot_bytes[MAX_ARGUMENTS]; /* device memory behind it, 0 for none of ours */
  void* places[MAX_ARGUMENTS];      /* the pre-bound array: the address of each slot */
  const Section* held[MAX_ARGUMENTS]; /* what each index holds; while it is built only */
  Launch launches[MAX_LAUNCHES];
  LaunchAttribute programmatic;
  void *module, *scaled_module;
  Address sources, workspace;
  int64_t num_slots;
} Direction;

struct sparsesmith_op {
  int num_rows, num_cols, nnz, num_dense_cols, element_bytes, is_double;
  int device;
  void* context; /* retained */
  void* support;
  void *gather, *add;
  uint64_t device_bytes;
  Direction directions[2]; /* A, A^T */
};

/* Sections */

struct Section {
  char name[NAME_BYTES + 1];
  const unsigned char* data;
  size_t bytes;
};

typedef struct {
  Section sections[MAX_SECTIONS];
  int count;
} Image;

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void fill_crc_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t word = i;
    for (int bit = 0; bit < 8; bit++) word = word & 1 ? 0xedb88320u ^ word >> 1 : word >> 1;
    crc_table[i] = word;
  }
}

static uint32_t crc32_of(const unsigned char* data, size_t bytes) {
  pthread_once(&crc_once, fill_crc_table);
  uint32_t word = 0xffffffffu;
  for (size_t i = 0; i < bytes; i++) word = crc_table[(word ^ data[i]) & 255] ^ word >> 8;
  return ~word;
}

static uint32_t word_at(const unsigned char* place) {
  uint32_t word;
  memcpy(&word, place, sizeof word);
  return word;
}

static uint64_t long_at(const unsigned char* place) {
  uint64_t word;
  memcpy(&word, place, sizeof word);
  return word;
}

static int read_image(const unsigned char* data, size_t bytes, Image* image) {
  const size_t entry_bytes = NAME_BYTES + 24;
  if (bytes < HEAD_BYTES || memcmp(data, "SPSMOPER", 8)) return refuse(SPARSESMITH_BAD_FILE, "this is no saved operator");
  uint32_t version = word_at(data + 8), count = word_at(data + 12);
  if (version != VERSION)
    return refuse(SPARSESMITH_BAD_FILE, "the operator is of version %u: this library reads %d", version, VERSION);
  if (count > MAX_SECTIONS || bytes < HEAD_BYTES + count * entry_bytes ||
      crc32_of(data + HEAD_BYTES, count * entry_bytes) != word_at(data + 16))
    return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: its table is not what was written");
  image->count = (int)count;
  for (uint32_t i = 0; i < count; i++) {
    const unsigned char* entry = data + HEAD_BYTES + i * entry_bytes;
    Section* section = &image->sections[i];
    memcpy(section->name, entry, NAME_BYTES);
    section->name[NAME_BYTES] = 0;
    uint64_t offset = long_at(entry + NAME_BYTES), length = long_at(entry + NAME_BYTES + 8);
    if (offset > bytes || length > bytes - offset ||
        crc32_of(data + offset, length) != word_at(entry + NAME_BYTES + 16))
      return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: section %s is not what was written", section->name);
    section->data = data + offset;
    section->bytes = length;
  }
  return SPARSESMITH_OK;
}

static const Section* section_of(const Image* image, const char* prefix, const char* name) {
  char whole[2 * NAME_BYTES + 256];
  snprintf(whole, sizeof whole, "%s%s", prefix, name);
  for (int i = 0; i < image->count; i++)
    if (!strcmp(image->sections[i].name, whole)) return &image->sections[i];
  return NULL;
}

/* Building */

static int allocate(sparsesmith_op* op, size_t bytes, Address* address) {
  CHECKED(driver.allocate(address, bytes ? bytes : 1), "device memory");
  op->device_bytes += bytes ? bytes : 1;
  return SPARSESMITH_OK;
}

static int upload_section(sparsesmith_op* op, const Section* section, Address* address) {
  PASSED(allocate(op, section->bytes, address));
  if (section->bytes) CHECKED(driver.upload(*address, section->data, section->bytes), "upload");
  return SPARSESMITH_OK;
}

static int bad_plan(const char* line) { return refuse(SPARSESMITH_BAD_FILE, "the operator's plan is unreadable: %s", line); }

/* Machine code must begin with where its container says it lies: copied, so that it is aligned. */
static int load_module(const Section* section, void** module) {
  char* copy = malloc(section->bytes + 1);
  if (!copy) return refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory for the machine code");
  memcpy(copy, section->data, section->bytes);
  copy[section->bytes] = 0;
  int status = driver.load(module, copy);
  free(copy);
  return status ? driver_failed(status, "loading the machine code") : SPARSESMITH_OK;
}

/* What both directions read of the matrix lies in the device's memory once: 0 where A has no such array. */
static Address held_already(const sparsesmith_op* op, const Direction* direction, const Section* section) {
  const Direction* first = op->directions;
  for (int i = 0; direction != first && i < first->num_arguments; i++) {
    const Section* held = first->held[i];
    if (held && held->bytes == section->bytes && !memcmp(held->data, section->data, held->bytes)) return first->slots[i];
  }
  return 0;
}

/* The values of A where A^T reads them in the same order, else 0. */
static Address values_held_already(const sparsesmith_op* op, const Direction* direction, const Image* image,
                                   const char* prefix, size_t bytes) {
  const Direction* first = op->directions;
  if (direction == first || first->values_at < 0 || (size_t)first->num_slots * (size_t)op->element_bytes != bytes) return 0;
  if (section_of(image, "", "value_sources") || section_of(image, prefix, "value_sources")) return 0;
  return first->slots[first->values_at];
}

static int read_argument(sparsesmith_op* op, Direction* direction, const Image* image, const char* prefix,
                         const char* line) {
  char role[16], rest[256];
  if (direction->num_arguments == MAX_ARGUMENTS || sscanf(line, "argument %15s %255[^\n]", role, rest) != 2)
    return bad_plan(line);
  int at = direction->num_arguments++;
  direction->places[at] = &direction->slots[at];
  if (!strcmp(role, "size")) {
    direction->slots[at] = (uint32_t)atoi(rest);
  } else if (!strcmp(role, "index")) {
    char name[300];
    snprintf(name, sizeof name, "index.%s", rest);
    const Section* section = section_of(image, prefix, name);
    if (!section) return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: section %s%s is missing", prefix, name);
    direction->held[at] = section;
    direction->slots[at] = held_already(op, direction, section);
    if (direction->slots[at]) return SPARSESMITH_OK;
    PASSED(upload_section(op, section, &direction->slots[at]));
    direction->slot_bytes[at] = 1;
  } else if (!strcmp(role, "values") || !strcmp(role, "scratch")) {
    size_t bytes = (size_t)strtoull(rest, NULL, 10);
    if (*role == 'v') direction->slots[at] = values_held_already(op, direction, image, prefix, bytes);
    if (!direction->slots[at]) {
      PASSED(allocate(op, bytes, &direction->slots[at]));
      direction->slot_bytes[at] = 1;
    }
    if (*role == 's') {
      direction->has_scratch = 1;
    } else {
      direction->values_at = at;
      direction->num_slots = (int64_t)(bytes / (size_t)op->element_bytes);
    }
  } else if (!strcmp(role, "input")) {
    direction->x_at = at;
    direction->num_inputs = strtoll(rest, NULL, 10);
  } else if (!strcmp(role, "output")) {
    direction->y_at = at;
    direction->num_results = strtoll(rest, NULL, 10);
  } else {
    return bad_plan(line);
  }
  return SPARSESMITH_OK;
}

static int read_launch(Direction* direction, const char* line) {
  int is_programmatic;
  if (direction->num_launches == MAX_LAUNCHES) return bad_plan(line);
  Launch* launch = &direction->launches[direction->num_launches++];
  LaunchConfiguration* to = &launch->configuration;
  unsigned largest;
  if (sscanf(line, "launch %255s %u %u %u %u %u %u %u %u %d", launch->name, to->grid, to->grid + 1, to->grid + 2,
             to->block, to->block + 1, to->block + 2, &to->shared_bytes, &largest, &is_programmatic) != 10)
    return bad_plan(line);
  direction->programmatic.id = PROGRAMMATIC_STREAM_SERIALIZATION;
  direction->programmatic.value = 1;
  to->attributes = &direction->programmatic;
  to->num_attributes = is_programmatic ? 1 : 0;
  CHECKED(driver.function(&launch->plain, direction->module, launch->name), launch->name);
  if (largest) CHECKED(driver.set_attribute(launch->plain, MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)largest), launch->name);
  if (direction->scaled_module) {
    CHECKED(driver.function(&launch->scaled, direction->scaled_module, launch->name), launch->name);
    if (largest)
      CHECKED(driver.set_attribute(launch->scaled, MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)largest), launch->name);
  }
  return SPARSESMITH_OK;
}

static int check_architecture(const sparsesmith_op* op, const char* saved) {
  int major = 0, minor = 0;
  char found[32];
  CHECKED(driver.device_attribute(&major, COMPUTE_CAPABILITY_MAJOR, op->device), "the GPU's architecture");
  CHECKED(driver.device_attribute(&minor, COMPUTE_CAPABILITY_MINOR, op->device), "the GPU's architecture");
  snprintf(found, sizeof found, "sm_%d%d", major, minor);
  if (strcmp(found, saved))
    return refuse(SPARSESMITH_OTHER_ARCHITECTURE,
                  "the operator holds machine code for %s, this GPU is %s: in Python, sparsesmith.load(path, "
                  "recompile=True).save(path) on this machine compiles the program for it",
                  saved, found);
  return SPARSESMITH_OK;
}

static int read_line(sparsesmith_op* op, Direction* direction, const Image* image, const char* prefix,
                     const char* line) {
  char word[32];
  if (!strncmp(line, "argument ", 9)) return read_argument(op, direction, image, prefix, line);
  if (!strncmp(line, "launch ", 7)) return read_launch(direction, line);
  if (sscanf(line, "architecture %31s", word) == 1) return check_architecture(op, word);
  if (!strncmp(line, "matrix ", 7)) {
    if (*prefix) return SPARSESMITH_OK; /* That of A^T says the same, turned. */
    int found = sscanf(line, "matrix %d %d %d %d", &op->num_rows, &op->num_cols, &op->nnz, &op->num_dense_cols);
    return found == 4 ? SPARSESMITH_OK : bad_plan(line);
  }
  if (sscanf(line, "element %31s %d", word, &op->element_bytes) == 2) {
    op->is_double = !strcmp(word, "float64");
    return SPARSESMITH_OK;
  }
  return SPARSESMITH_OK; /* of a later release, and not needed */
}

static int build_direction(sparsesmith_op* op, Direction* direction, const Image* image, const char* prefix) {
  const Section *plan = section_of(image, prefix, "plan"), *code = section_of(image, prefix, "cubin");
  const Section *scaled = section_of(image, prefix, "scaled"), *sources = section_of(image, prefix, "value_sources");
  if (!plan || !code)
    return *prefix ? SPARSESMITH_OK
                   : refuse(SPARSESMITH_NOT_THERE, "the operator was saved without %s: where it was saved no compiler "
                            "was found, or the library's routine was the answer", plan ? "machine code" : "a plan");
  direction->x_at = direction->y_at = direction->values_at = -1;
  char* text = malloc(plan->bytes + 1);
  if (!text) return refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory for the plan");
  memcpy(text, plan->data, plan->bytes);
  text[plan->bytes] = 0;
  int status = SPARSESMITH_OK;
  /* What the plan says of the machine comes first, before anything is given to the driver. */
  char* code_line = strstr(text, "architecture ");
  if (code_line) {
    char word[32] = "";
    if (sscanf(code_line, "architecture %31s", word) == 1) status = check_architecture(op, word);
  }
  if (!status) status = load_module(code, &direction->module);
  if (!status && scaled) status = load_module(scaled, &direction->scaled_module);
  char* rest = NULL;
  for (char* line = strtok_r(text, "\n", &rest); line && !status; line = strtok_r(NULL, "\n", &rest))
    status = read_line(op, direction, image, prefix, line);
  free(text);
  PASSED(status);
  if (direction->x_at < 0 || direction->y_at < 0 || !direction->num_launches) return bad_plan("x, y or launches missing");
  if (sources) PASSED(upload_section(op, sources, &direction->sources));
  direction->is_scaled = direction->scaled_module != NULL;
  direction->is_there = 1;
  return SPARSESMITH_OK;
}

/* Products */

static int launch_all(const sparsesmith_op* op, const Direction* direction, int is_scaled, void** places, void* stream) {
  for (int i = 0; i < direction->num_launches; i++) {
    const Launch* launch = &direction->launches[i];
    LaunchConfiguration configuration = launch->configuration;
    configuration.stream = stream;
    void* function = is_scaled ? launch->scaled : launch->plain;
    int status = driver.launch(&configuration, function, places, NULL);
    if (status == ERROR_INVALID_CONTEXT && !driver.set_current(op->context)) /* A thread that has none yet. */
      status = driver.launch(&configuration, function, places, NULL);
    if (status) return driver_failed(status, launch->name);
  }
  return SPARSESMITH_OK;
}

/* A thread that has no context yet gets the operator's. Launches find out by themselves. */
static int need_context(const sparsesmith_op* op) {
  void* current = NULL;
  CHECKED(driver.current(&current), "the current context");
  if (!current) CHECKED(driver.set_current(op->context), "the device's context");
  return SPARSESMITH_OK;
}

static int launch_one(const sparsesmith_op* op, void* function, int64_t count, void** places, void* stream) {
  const int64_t block = 256, most = 65536;
  int64_t blocks = (count + block - 1) / block;
  LaunchConfiguration configuration = {
      .grid = {(unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks), 1, 1}, .block = {block, 1, 1}, .stream = stream};
  int status = driver.launch(&configuration, function, places, NULL);
  if (status == ERROR_INVALID_CONTEXT && !driver.set_current(op->context))
    status = driver.launch(&configuration, function, places, NULL);
  return status ? driver_failed(status, "launch") : SPARSESMITH_OK;
}

static int overlaps(const void* left, uint64_t left_bytes, const void* right, uint64_t right_bytes) {
  uint64_t l = (uint64_t)(uintptr_t)left, r = (uint64_t)(uintptr_t)right;
  return l < r + right_bytes && r < l + left_bytes;
}

static int product(const sparsesmith_op* op, int is_transposed, double alpha, const void* x, double beta, void* y,
                   void* stream) {
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  const Direction* direction = &op->directions[is_transposed];
  if (!direction->is_there)
    return refuse(SPARSESMITH_NOT_THERE, "the operator was saved without its transpose: Operator.save(path, transposed=True)");
  if (!x) return refuse(SPARSESMITH_INVALID_ARGUMENT, "x is NULL");
  if (!y) return refuse(SPARSESMITH_INVALID_ARGUMENT, "y is NULL");
  if (overlaps(x, (uint64_t)direction->num_inputs * (uint64_t)op->element_bytes, y,
               (uint64_t)direction->num_results * (uint64_t)op->element_bytes))
    return refuse(SPARSESMITH_INVALID_ARGUMENT, "y overlaps x in memory");
  void* places[MAX_ARGUMENTS + 2];
  memcpy(places, direction->places, sizeof(void*) * (size_t)direction->num_arguments);
  places[direction->x_at] = &x;
  places[direction->y_at] = &y;
  if (alpha == 1 && beta == 0) return launch_all(op, direction, 0, places, stream);
  float narrow_alpha = (float)alpha, narrow_beta = (float)beta;
  void *alpha_at = op->is_double ? (void*)&alpha : &narrow_alpha, *beta_at = op->is_double ? (void*)&beta : &narrow_beta;
  if (direction->is_scaled) {
    places[direction->num_arguments] = alpha_at;
    places[direction->num_arguments + 1] = beta_at;
    return launch_all(op, direction, 1, places, stream);
  }
  Address workspace = direction->workspace;
  int64_t count = direction->num_results;
  places[direction->y_at] = &workspace;
  PASSED(launch_all(op, direction, 0, places, stream));
  void* arguments[] = {&workspace, &y, &count, alpha_at, beta_at};
  return launch_one(op, op->add, count, arguments, stream);
}

int sparsesmith_op_apply(const sparsesmith_op* op, double alpha, const void* x, double beta, void* y, void* stream) {
  return product(op, 0, alpha, x, beta, y, stream);
}

int sparsesmith_op_apply_transposed(const sparsesmith_op* op, double alpha, const void* x, double beta, void* y,
                                    void* stream) {
  return product(op, 1, alpha, x, beta, y, stream);
}

static int set_values(const sparsesmith_op* op, const Direction* direction, Address values, void* stream) {
  if (!direction->is_there || direction->values_at < 0) return SPARSESMITH_OK;
  Address packed = direction->slots[direction->values_at], sources = direction->sources;
  if (!direction->slot_bytes[direction->values_at]) return SPARSESMITH_OK; /* Those of A. */
  if (!sources) {
    CHECKED(driver.copy_async(packed, values, (size_t)direction->num_slots * (size_t)op->element_bytes, stream), "values");
    return SPARSESMITH_OK;
  }
  int64_t count = direction->num_slots;
  void* arguments[] = {&values, &sources, &packed, &count};
  PASSED(launch_one(op, op->gather, (count + 3) / 4, arguments, stream)); /* Four in flight a thread. */
  if (!direction->launches[0].configuration.num_attributes) return SPARSESMITH_OK;
  /* A product that starts early reads values before it waits for the kernel before it: that must not be the one that
   * changes them. */
  count = 0;
  return launch_one(op, op->gather, count, arguments, stream);
}

int sparsesmith_op_update_values(sparsesmith_op* op, const void* values, int64_t num_values, void* stream) {
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  if (!values) return refuse(SPARSESMITH_INVALID_ARGUMENT, "values is NULL");
  if (num_values != op->nnz)
    return refuse(SPARSESMITH_INVALID_ARGUMENT, "num_values is %lld: the matrix has %d nonzeros", (long long)num_values,
                  op->nnz);
  if (op->directions[0].values_at < 0)
    return refuse(SPARSESMITH_INVALID_ARGUMENT, "values are fixed: the kernel is valid for those it was tuned with only");
  PASSED(need_context(op));
  for (int i = 0; i < 2; i++) PASSED(set_values(op, &op->directions[i], (Address)(uintptr_t)values, stream));
  return SPARSESMITH_OK;
}

static int unpack(const sparsesmith_op* op, const Direction* direction, char* packed, int32_t* sources, char* values) {
  size_t width = (size_t)op->element_bytes, count = (size_t)direction->num_slots;
  CHECKED(driver.synchronize(), "values");
  CHECKED(driver.download(packed, direction->slots[direction->values_at], count * width), "values");
  if (direction->sources)
    CHECKED(driver.download(sources, direction->sources, count * sizeof *sources), "values");
  for (size_t slot = 0; slot < count; slot++) {
    int64_t source = direction->sources ? sources[slot] : (int64_t)slot;
    if (source >= 0) memcpy(values + (size_t)source * width, packed + slot * width, width);
  }
  return SPARSESMITH_OK;
}

int sparsesmith_op_read_values(const sparsesmith_op* op, void* values, int64_t num_values) {
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  if (!values) return refuse(SPARSESMITH_INVALID_ARGUMENT, "values is NULL");
  if (num_values != op->nnz)
    return refuse(SPARSESMITH_INVALID_ARGUMENT, "num_values is %lld: the matrix has %d nonzeros", (long long)num_values,
                  op->nnz);
  const Direction* direction = &op->directions[0];
  if (direction->values_at < 0)
    return refuse(SPARSESMITH_INVALID_ARGUMENT, "values are fixed: the kernel holds them in another form");
  PASSED(need_context(op));
  char* packed = malloc((size_t)direction->num_slots * (size_t)op->element_bytes + 1);
  int32_t* sources = malloc((size_t)direction->num_slots * sizeof *sources + 1);
  int status = packed && sources ? unpack(op, direction, packed, sources, values)
                                 : refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory for the values");
  free(packed);
  free(sources);
  return status;
}

/* Whether alpha and beta applied where the kernel stores give what they should: a kernel that stores an element twice
 * would scale it twice. Numbers of the host's own, on the operator's matrix. */

static double number_at(const sparsesmith_op* op, const void* numbers, int64_t i) {
  return op->is_double ? ((const double*)numbers)[i] : (double)((const float*)numbers)[i];
}

static void set_number(const sparsesmith_op* op, void* numbers, int64_t i, double number) {
  if (op->is_double)
    ((double*)numbers)[i] = number;
  else
    ((float*)numbers)[i] = (float)number;
}

static double drawn(uint64_t* state) { /* in +-[0.5, 1.5] */
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  double size = 0.5 + (double)(*state >> 11) / 9007199254740992.0;
  return *state >> 63 ? -size : size;
}

static int try_scaled(const sparsesmith_op* op, Direction* direction, Address x, Address y, void* numbers, double* plain) {
  const double alpha = 0.75, beta = -0.5;
  size_t width = (size_t)op->element_bytes;
  size_t result_bytes = (size_t)direction->num_results * width;
  uint64_t state = 20;
  void *given = (void*)(uintptr_t)x, *result = (void*)(uintptr_t)y;
  for (int64_t i = 0; i < direction->num_inputs; i++) set_number(op, numbers, i, drawn(&state));
  CHECKED(driver.upload(x, numbers, (size_t)direction->num_inputs * width), "upload");
  PASSED(product(op, direction != op->directions, 1, given, 0, result, NULL));
  CHECKED(driver.synchronize(), "a first product");
  CHECKED(driver.download(numbers, y, result_bytes), "download");
  double largest = 0;
  for (int64_t i = 0; i < direction->num_results; i++) {
    plain[i] = number_at(op, numbers, i);
    double size = plain[i] < 0 ? -plain[i] : plain[i];
    if (size > largest) largest = size;
  }
  if (largest == 0) largest = 1;
  for (int64_t i = 0; i < direction->num_results; i++) set_number(op, numbers, i, largest * drawn(&state));
  CHECKED(driver.upload(y, numbers, result_bytes), "upload");
  for (int64_t i = 0; i < direction->num_results; i++)
    plain[i] = alpha * plain[i] + beta * number_at(op, numbers, i);
  if (product(op, direction != op->directions, alpha, given, beta, result, NULL)) {
    direction->is_scaled = 0; /* It may need more registers than the plain one, and be refused where that runs. */
    last_error[0] = 0;
    return SPARSESMITH_OK;
  }
  CHECKED(driver.synchronize(), "a first scaled product");
  CHECKED(driver.download(numbers, y, result_bytes), "download");
  for (int64_t i = 0; i < direction->num_results; i++) {
    double error = number_at(op, numbers, i) - plain[i];
    if (!(error <= 0.01 * largest && -error <= 0.01 * largest)) direction->is_scaled = 0;
  }
  return SPARSESMITH_OK;
}

static int check_scaled(sparsesmith_op* op, Direction* direction) {
  size_t width = (size_t)op->element_bytes;
  int64_t most = direction->num_inputs > direction->num_results ? direction->num_inputs : direction->num_results;
  if (direction->is_scaled) {
    Address x = 0, y = 0;
    void* numbers = malloc((size_t)most * width);
    double* plain = malloc((size_t)direction->num_results * sizeof(double));
    int status = numbers && plain ? SPARSESMITH_OK : refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory");
    if (!status && (driver.allocate(&x, (size_t)direction->num_inputs * width) ||
                    driver.allocate(&y, (size_t)direction->num_results * width)))
      status = refuse(SPARSESMITH_OUT_OF_MEMORY, "no device memory for two vectors");
    if (!status) status = try_scaled(op, direction, x, y, numbers, plain);
    if (x) driver.release(x);
    if (y) driver.release(y);
    free(numbers);
    free(plain);
    PASSED(status);
  }
  if (!direction->is_scaled) PASSED(allocate(op, (size_t)direction->num_results * width, &direction->workspace));
  return SPARSESMITH_OK;
}

/* Creating */

static int take_context(sparsesmith_op* op) {
  void* current = NULL;
  CHECKED(driver.current(&current), "the current context");
  if (current) CHECKED(driver.current_device(&op->device), "the current device");
  int device = 0;
  CHECKED(driver.device_get(&device, op->device), "the device");
  CHECKED(driver.primary_retain(&op->context, op->device), "the device's context");
  if (!current) CHECKED(driver.set_current(op->context), "the device's context");
  return SPARSESMITH_OK;
}

static int check_pattern(const sparsesmith_op* op, const Image* image, const sparsesmith_csr* csr) {
  const struct {
    const char* name;
    const int32_t* place;
    size_t count;
  } parts[] = {{"row_offsets", csr->row_offsets, (size_t)op->num_rows + 1}, {"col_indices", csr->col_indices, (size_t)op->nnz}};
  if (csr->num_rows != op->num_rows || csr->num_cols != op->num_cols || csr->nnz != op->nnz)
    return refuse(SPARSESMITH_INVALID_ARGUMENT,
                  "csr is %d x %d with %d nonzeros: the kernel was tuned for %d x %d with %d", csr->num_rows,
                  csr->num_cols, csr->nnz, op->num_rows, op->num_cols, op->nnz);
  for (int i = 0; i < 2; i++) {
    const Section* section = section_of(image, "", parts[i].name);
    size_t bytes = parts[i].count * sizeof(int32_t);
    if (!parts[i].place) return refuse(SPARSESMITH_INVALID_ARGUMENT, "csr.%s is NULL", parts[i].name);
    if (!section || section->bytes != bytes)
      return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: section %s is missing", parts[i].name);
    void* found = malloc(bytes);
    if (!found) return refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory for the pattern");
    int status = driver.download(found, (Address)(uintptr_t)parts[i].place, bytes);
    int is_same = !status && !memcmp(found, section->data, bytes);
    free(found);
    if (status) return driver_failed(status, parts[i].name);
    if (!is_same)
      return refuse(SPARSESMITH_INVALID_ARGUMENT, "csr.%s is another than the kernel was tuned for", parts[i].name);
  }
  return SPARSESMITH_OK;
}

static int has_values(const Direction* direction) { return direction->is_there && direction->values_at >= 0; }

static int first_values(sparsesmith_op* op, const Image* image, const sparsesmith_csr* csr) {
  if (!has_values(&op->directions[0]) && !has_values(&op->directions[1])) return SPARSESMITH_OK;
  Address values = 0;
  int status = SPARSESMITH_OK, is_ours = 0;
  if (csr) {
    if (!csr->values) return refuse(SPARSESMITH_INVALID_ARGUMENT, "csr.values is NULL");
    values = (Address)(uintptr_t)csr->values;
  } else {
    const Section* section = section_of(image, "", "values");
    if (!section || section->bytes != (size_t)op->nnz * (size_t)op->element_bytes)
      return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: section values is missing");
    int allocated = driver.allocate(&values, section->bytes);
    if (allocated) return driver_failed(allocated, "device memory for the values");
    is_ours = 1;
    int uploaded = driver.upload(values, section->data, section->bytes);
    if (uploaded) status = driver_failed(uploaded, "values");
  }
  for (int i = 0; i < 2 && !status; i++) status = set_values(op, &op->directions[i], values, NULL);
  int ended = driver.synchronize();
  if (!status && ended) status = driver_failed(ended, "values");
  if (is_ours) driver.release(values);
  return status;
}

static int build(sparsesmith_op* op, const Image* image, const sparsesmith_csr* csr) {
  static const char* const prefixes[] = {"", "T."};
  PASSED(take_context(op));
  const Section* support = section_of(image, "", "support");
  for (int i = 0; i < 2; i++) PASSED(build_direction(op, &op->directions[i], image, prefixes[i]));
  if (!support) return refuse(SPARSESMITH_BAD_FILE, "the operator is damaged: section support is missing");
  PASSED(load_module(support, &op->support));
  CHECKED(driver.function(&op->gather, op->support, "sparsesmith_gather"), "sparsesmith_gather");
  CHECKED(driver.function(&op->add, op->support, "sparsesmith_add"), "sparsesmith_add");
  if (csr) PASSED(check_pattern(op, image, csr));
  PASSED(first_values(op, image, csr));
  for (int i = 0; i < 2; i++)
    if (op->directions[i].is_there) PASSED(check_scaled(op, &op->directions[i]));
  return SPARSESMITH_OK;
}

int sparsesmith_op_create(const void* image, size_t num_bytes, const sparsesmith_csr* csr, sparsesmith_op** op) {
  last_error[0] = 0;
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  *op = NULL;
  if (!image) return refuse(SPARSESMITH_INVALID_ARGUMENT, "image is NULL");
  Image* read = calloc(1, sizeof *read);
  sparsesmith_op* made = calloc(1, sizeof *made);
  int status = read && made ? SPARSESMITH_OK : refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory");
  if (!status) status = read_image(image, num_bytes, read);
  if (!status) status = need_driver();
  if (!status) status = build(made, read, csr);
  free(read);
  if (status) {
    char words[sizeof last_error];
    memcpy(words, last_error, sizeof words);
    sparsesmith_op_destroy(made);
    memcpy(last_error, words, sizeof words);
    return status;
  }
  *op = made;
  return SPARSESMITH_OK;
}

static int read_file(FILE* file, const char* path, sparsesmith_op** op) {
  if (fseek(file, 0, SEEK_END)) return refuse(SPARSESMITH_BAD_FILE, "%s cannot be read", path);
  long bytes = ftell(file);
  rewind(file);
  void* image = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
  if (!image) return refuse(SPARSESMITH_OUT_OF_MEMORY, "no host memory for %s", path);
  int status = fread(image, 1, (size_t)bytes, file) == (size_t)bytes
                   ? sparsesmith_op_create(image, (size_t)bytes, NULL, op)
                   : refuse(SPARSESMITH_BAD_FILE, "%s cannot be read", path);
  free(image);
  return status;
}

int sparsesmith_op_load(const char* path, sparsesmith_op** op) {
  last_error[0] = 0;
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  *op = NULL;
  if (!path) return refuse(SPARSESMITH_INVALID_ARGUMENT, "path is NULL");
  FILE* file = fopen(path, "rb");
  if (!file) return refuse(SPARSESMITH_BAD_FILE, "%s cannot be opened", path);
  int status = read_file(file, path, op);
  fclose(file);
  return status;
}

int sparsesmith_op_describe(const sparsesmith_op* op, sparsesmith_op_info* info) {
  if (!op) return refuse(SPARSESMITH_INVALID_ARGUMENT, "op is NULL");
  if (!info) return refuse(SPARSESMITH_INVALID_ARGUMENT, "info is NULL");
  const Direction* both = op->directions;
  *info = (sparsesmith_op_info){
      .num_rows = op->num_rows,
      .num_cols = op->num_cols,
      .nnz = op->nnz,
      .num_dense_cols = op->num_dense_cols,
      .element_bytes = op->element_bytes,
      .has_transposed = both[1].is_there,
      .has_scratch = both[0].has_scratch || both[1].has_scratch || both[0].workspace || both[1].workspace,
      .is_scaled_in_place = both[0].is_scaled && (!both[1].is_there || both[1].is_scaled),
      .device_bytes = op->device_bytes,
  };
  return SPARSESMITH_OK;
}

static void free_direction(Direction* direction) {
  for (int i = 0; i < direction->num_arguments; i++)
    if (direction->slot_bytes[i] && direction->slots[i]) driver.release(direction->slots[i]);
  if (direction->sources) driver.release(direction->sources);
  if (direction->workspace) driver.release(direction->workspace);
  if (direction->module) driver.unload(direction->module);
  if (direction->scaled_module) driver.unload(direction->scaled_module);
}

void sparsesmith_op_destroy(sparsesmith_op* op) {
  if (!op) return;
  if (op->context) {
    void* current = NULL;
    driver.current(&current);
    if (!current) driver.set_current(op->context);
    for (int i = 0; i < 2; i++) free_direction(&op->directions[i]);
    if (op->support) driver.unload(op->support);
    driver.primary_release(op->device);
  }
  free(op);
}
