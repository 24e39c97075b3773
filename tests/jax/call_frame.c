/* A call of a handler as XLA makes it: an execution context that knows a stream, errors that are their words. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error* create(XLA_FFI_Error_Create_Args* args) { return (XLA_FFI_Error*)strdup(args->message); }

static XLA_FFI_Error* stream_of(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx;
  return NULL;
}

/* The words of what went wrong, or NULL. values NULL: none are handed in. element: XLA's number of the type. */
char* call_frame(XLA_FFI_Handler* handler, int64_t handle, int64_t transposed, int64_t element, void* x, int64_t num_x,
                 void* values, int64_t num_values, void* y, int64_t num_y, void* stream) {
  XLA_FFI_Api api = {.struct_size = XLA_FFI_Api_STRUCT_SIZE, .XLA_FFI_Error_Create = create, .XLA_FFI_Stream_Get = stream_of};
  int64_t dims[][2] = {{num_x, 1}, {num_values, 1}, {num_y, 1}};
  XLA_FFI_Buffer buffers[] = {{.data = x, .rank = 2, .dims = dims[0]},
                              {.data = values, .rank = 1, .dims = dims[1]},
                              {.data = y, .rank = 2, .dims = dims[2]}};
  for (int i = 0; i < 3; i++) buffers[i].dtype = (XLA_FFI_DataType)element;
  void *args[] = {&buffers[0], &buffers[1]}, *rets[] = {&buffers[2]};
  XLA_FFI_ByteSpan names[] = {{"handle", 6}, {"transposed", 10}}, *name_places[] = {&names[0], &names[1]};
  XLA_FFI_Scalar scalars[] = {{XLA_FFI_DataType_S64, &handle}, {XLA_FFI_DataType_S64, &transposed}};
  void* attrs[] = {&scalars[0], &scalars[1]};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_SCALAR, XLA_FFI_AttrType_SCALAR};
  XLA_FFI_CallFrame frame = {.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
                             .api = &api,
                             .ctx = stream,
                             .stage = XLA_FFI_ExecutionStage_EXECUTE,
                             .args = {.size = values ? 2 : 1, .args = args},
                             .rets = {.size = 1, .rets = rets},
                             .attrs = {.size = 2, .types = types, .names = name_places, .attrs = attrs}};
  return (char*)handler(&frame);
}
