/* libsparsesmith_op: products of a tuned sparse matrix with vectors on an NVIDIA GPU.
 *
 * Needs no CUDA toolkit, neither to build nor to run: the driver (libcuda.so.1) is loaded when it is first needed. An
 * operator comes from a file that Python's `Operator.save` wrote, machine code inside.
 *
 *     sparsesmith_op* A;
 *     if (sparsesmith_op_load("A.operator", &A)) puts(sparsesmith_op_last_error());
 *     sparsesmith_op_apply(A, 1.0, x, 0.0, y, stream);       y = A x; x and y lie on the device
 *     sparsesmith_op_destroy(A);
 *
 * Every function but the last two gives 0 or a sparsesmith_status; what went wrong is then in words what
 * sparsesmith_op_last_error gives in the same thread.
 *
 * Streams are CUstream (cudaStream_t is the same). A product puts its launches on the stream and returns: it allocates
 * nothing, waits for nothing and may be captured in a graph. Any number of threads may call it at once, on streams of
 * their own; where `has_scratch`, products of one operator must follow one another on the GPU.
 */
#ifndef SPARSESMITH_OP_H
#define SPARSESMITH_OP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPARSESMITH_OP_ABI 1

typedef struct sparsesmith_op sparsesmith_op;

enum sparsesmith_status {
  SPARSESMITH_OK = 0,
  SPARSESMITH_INVALID_ARGUMENT = 1,   /* an argument is wrong: the message begins with its name */
  SPARSESMITH_BAD_FILE = 2,           /* damaged, of another version, or no saved operator */
  SPARSESMITH_NO_DRIVER = 3,          /* no libcuda.so.1, or no GPU */
  SPARSESMITH_OTHER_ARCHITECTURE = 4, /* the machine code is for another GPU */
  SPARSESMITH_DRIVER_FAILED = 5,      /* the driver refused something; its own words */
  SPARSESMITH_OUT_OF_MEMORY = 6,
  SPARSESMITH_NOT_THERE = 7           /* the operator was saved without it */
};

/* A matrix on the device: columns ascending in each row, no duplicates; values of the operator's element type. */
typedef struct {
  int32_t num_rows, num_cols, nnz;
  const int32_t* row_offsets; /* [num_rows + 1] */
  const int32_t* col_indices; /* [nnz] */
  const void* values;         /* [nnz] */
} sparsesmith_csr;

typedef struct {
  int32_t num_rows, num_cols, nnz;
  int32_t num_dense_cols;     /* columns of x and y, row-major: 1 for vectors */
  int32_t element_bytes;      /* 4: float32, 8: float64, 2: float16 or bfloat16 */
  int32_t has_transposed;
  int32_t has_scratch;
  int32_t is_scaled_in_place; /* alpha and beta are applied where the kernel stores: no second kernel, no workspace */
  uint64_t device_bytes;      /* memory of the GPU that it holds */
} sparsesmith_op_info;

/* SPARSESMITH_OP_ABI of the library. */
int sparsesmith_op_abi(void);

/* An operator from a file, on the device whose context is current, else on device 0. */
int sparsesmith_op_load(const char* path, sparsesmith_op** op);

/* The same from a file's bytes, which may be embedded in a program. `csr`: NULL, or a matrix of the same pattern, whose
 * values are taken; another pattern is refused. */
int sparsesmith_op_create(const void* image, size_t num_bytes, const sparsesmith_csr* csr, sparsesmith_op** op);

/* y = alpha A x + beta y. With beta 0 what y holds is not read. x and y: device memory, apart from each other. */
int sparsesmith_op_apply(const sparsesmith_op* op, double alpha, const void* x, double beta, void* y, void* stream);

/* y = alpha A^T x + beta y, where the operator was saved with its transpose. */
int sparsesmith_op_apply_transposed(const sparsesmith_op* op, double alpha, const void* x, double beta, void* y,
                                    void* stream);

/* New values of all nonzeros, in the order of CSR, from device memory; on the stream, in place: a captured graph
 * multiplies with the new ones. */
int sparsesmith_op_update_values(sparsesmith_op* op, const void* values, int64_t num_values, void* stream);

/* The present values of all nonzeros, in the order of CSR, to host memory; waits for what was put on any stream. */
int sparsesmith_op_read_values(const sparsesmith_op* op, void* values, int64_t num_values);

int sparsesmith_op_describe(const sparsesmith_op* op, sparsesmith_op_info* info);

/* Gives back everything; NULL is nothing. Products in progress must have ended. */
void sparsesmith_op_destroy(sparsesmith_op* op);

/* What went wrong last in this thread; an empty text where nothing did. */
const char* sparsesmith_op_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
