/* What XLA calls where a JAX program multiplies with an operator: y = A x or A^T x, by its number. Plain C11 over
 * XLA's C interface (its headers come with jaxlib), built where it is first used.
 *
 * On the host: CSR, summed in the element type. On a GPU: libsparsesmith_op, whose functions are handed in, on XLA's
 * stream; nothing is allocated and nothing waited for, so that XLA may capture it. A call holds the table of
 * operators while it reads: what is taken out of it is no longer read afterwards. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

typedef int (*Apply)(const void* op, double alpha, const void* x, double beta, void* y, void* stream);
typedef int (*Update)(void* op, const void* values, int64_t num_values, void* stream);
typedef const char* (*LastError)(void);

/* As sparsesmith/jax/targets.py declares it. */
typedef struct {
  int64_t num_rows, num_cols, nnz, element; /* element: XLA's number of the type */
  const int32_t *row_offsets, *col_indices; /* of the host; the caller keeps them */
  const void* values;
  const void* op;    /* with the operator's own values; NULL: there is no GPU */
  void* changing_op; /* takes values with each product; NULL: none yet */
  Apply apply, apply_transposed;
  Update update_values;
  LastError last_error;
} Entry;

typedef struct Node {
  int64_t number;
  Entry entry;
  struct Node* next;
} Node;

static Node* nodes;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static Node* found(int64_t number) {
  Node* node = nodes;
  while (node && node->number != number) node = node->next;
  return node;
}

/* 0, or 1 without memory. An entry of this number is replaced. */
int sparsesmith_ffi_put(int64_t number, const Entry* entry) {
  pthread_rwlock_wrlock(&lock);
  Node* node = found(number);
  if (!node && (node = calloc(1, sizeof *node))) {
    node->number = number;
    node->next = nodes;
    nodes = node;
  }
  if (node) node->entry = *entry;
  pthread_rwlock_unlock(&lock);
  return !node;
}

void sparsesmith_ffi_take_out(int64_t number) {
  pthread_rwlock_wrlock(&lock);
  for (Node** at = &nodes; *at; at = &(*at)->next)
    if ((*at)->number == number) {
      Node* gone = *at;
      *at = gone->next;
      free(gone);
      break;
    }
  pthread_rwlock_unlock(&lock);
}

/* What XLA hands in */

static XLA_FFI_Error* refuse(const XLA_FFI_CallFrame* frame, const char* words) {
  XLA_FFI_Error_Create_Args created = {
      .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = words, .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&created);
}

static int described(XLA_FFI_CallFrame* frame) {
  /* The first member's type has another name from jaxlib 0.11.1 on. */
  const XLA_FFI_Metadata_Extension* extension = (const void*)frame->extension_start;
  if (!extension || extension->extension_base.type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* metadata = extension->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  return 1;
}

static int number_of(const XLA_FFI_CallFrame* frame, const char* name, int64_t* number) {
  for (int64_t i = 0; i < frame->attrs.size; i++) {
    const XLA_FFI_ByteSpan* span = frame->attrs.names[i];
    if (span->len != strlen(name) || memcmp(span->ptr, name, span->len)) continue;
    const XLA_FFI_Scalar* scalar = frame->attrs.attrs[i];
    if (frame->attrs.types[i] != XLA_FFI_AttrType_SCALAR || scalar->dtype != XLA_FFI_DataType_S64) return 0;
    memcpy(number, scalar->value, sizeof *number);
    return 1;
  }
  return 0;
}

typedef struct {
  Entry entry;
  int64_t is_transposed, columns;
  const void *x, *values; /* values NULL: the operator's own */
  void* y;
} Call;

static int64_t count_of(const XLA_FFI_Buffer* buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++) count *= buffer->dims[i];
  return count;
}

/* With the table held, if nothing is wrong. */
static XLA_FFI_Error* begin(const XLA_FFI_CallFrame* frame, Call* call) {
  int64_t number;
  if (frame->args.size < 1 || frame->args.size > 2 || frame->rets.size != 1 || !number_of(frame, "handle", &number) ||
      !number_of(frame, "transposed", &call->is_transposed))
    return refuse(frame, "sparsesmith: a product takes x, perhaps values, handle and transposed");
  const XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  const XLA_FFI_Buffer* values = frame->args.size == 2 ? frame->args.args[1] : NULL;
  pthread_rwlock_rdlock(&lock);
  const Node* node = found(number);
  const char* trouble = NULL;
  if (!node) {
    trouble = "sparsesmith: the operator is gone: a compiled function must not outlive it";
  } else {
    const Entry* entry = &node->entry;
    int64_t inputs = call->is_transposed ? entry->num_rows : entry->num_cols;
    int64_t results = call->is_transposed ? entry->num_cols : entry->num_rows;
    call->columns = x->rank == 2 ? x->dims[1] : 1;
    if (count_of(x) != inputs * call->columns || count_of(y) != results * call->columns ||
        (values && count_of(values) != entry->nnz) || (int64_t)x->dtype != entry->element || x->dtype != y->dtype ||
        (values && values->dtype != x->dtype))
      trouble = "sparsesmith: x, y and values are not of the operator's shape and type";
    call->entry = *entry;
  }
  if (trouble) {
    pthread_rwlock_unlock(&lock);
    return refuse(frame, trouble);
  }
  call->x = x->data;
  call->y = y->data;
  call->values = values ? values->data : NULL;
  return NULL;
}

/* On the host */

#define PRODUCT(NAME, REAL)                                                                          \
  static void NAME(const Call* call) {                                                               \
    const Entry* a = &call->entry;                                                                   \
    const REAL *x = call->x, *values = call->values ? call->values : a->values;                      \
    const int64_t columns = call->columns;                                                           \
    REAL* y = call->y;                                                                               \
    memset(y, 0, (size_t)((call->is_transposed ? a->num_cols : a->num_rows) * columns) * sizeof *y); \
    for (int64_t row = 0; row < a->num_rows; row++)                                                  \
      for (int64_t j = a->row_offsets[row]; j < a->row_offsets[row + 1]; j++) {                      \
        const int64_t col = a->col_indices[j];                                                       \
        REAL* to = y + (call->is_transposed ? col : row) * columns;                                  \
        const REAL* from = x + (call->is_transposed ? row : col) * columns;                          \
        for (int64_t i = 0; i < columns; i++) to[i] += values[j] * from[i];                          \
      }                                                                                              \
  }
PRODUCT(product_of_floats, float)
PRODUCT(product_of_doubles, double)

XLA_FFI_Error* sparsesmith_ffi_on_the_host(XLA_FFI_CallFrame* frame) {
  Call call;
  if (described(frame)) return NULL;
  XLA_FFI_Error* error = begin(frame, &call);
  if (error) return error;
  if (call.entry.element == XLA_FFI_DataType_F64)
    product_of_doubles(&call);
  else if (call.entry.element == XLA_FFI_DataType_F32)
    product_of_floats(&call);
  else
    error = refuse(frame, "sparsesmith: on the host JAX multiplies in float32 and float64");
  pthread_rwlock_unlock(&lock);
  return error;
}

/* On a GPU */

static int launched(const Call* call, void* stream) {
  const Entry* a = &call->entry;
  Apply apply = call->is_transposed ? a->apply_transposed : a->apply;
  if (!call->values) return apply(a->op, 1, call->x, 0, call->y, stream);
  int status = a->update_values(a->changing_op, call->values, a->nnz, stream);
  return status ? status : apply(a->changing_op, 1, call->x, 0, call->y, stream);
}

XLA_FFI_Error* sparsesmith_ffi_on_a_gpu(XLA_FFI_CallFrame* frame) {
  Call call;
  if (described(frame)) return NULL;
  XLA_FFI_Stream_Get_Args got = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
  XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&got);
  if (!error) error = begin(frame, &call);
  if (error) return error;
  if (!(call.values ? call.entry.changing_op : call.entry.op))
    error = refuse(frame, "sparsesmith: the operator was not made for a GPU");
  else if (launched(&call, got.stream)) {
    char words[1100];
    snprintf(words, sizeof words, "sparsesmith: %s", call.entry.last_error());
    error = refuse(frame, words);
  }
  pthread_rwlock_unlock(&lock);
  return error;
}
