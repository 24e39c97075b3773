/* As much of cuSPARSE's generic API as an operator calls, on the host's memory: CSR and COO of float64. SpMV and SpMM refuse
 * a workspace that was not preprocessed, and algorithm 4 (COO ALG2 of SpMV) always. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { OK, REFUSED = 10 };
typedef struct { int is_csr; int64_t rows, cols, nnz; const int* major; const int* columns; const double* values; } Matrix;
typedef struct { int64_t rows, cols; double* values; } Dense;

void* stand_in_stream;
static int marks;

int cusparseCreate(void** handle) { *handle = &marks; return OK; }
int cusparseDestroy(void* handle) { return OK; }
int cusparseGetProperty(int part, int* value) { *value = part ? 0 : 12; return OK; }
const char* cusparseGetErrorName(int status) { return "CUSPARSE_STATUS_NOT_SUPPORTED"; }
int cusparseSetStream(void* handle, void* stream) { stand_in_stream = stream; return OK; }

static int matrix(void** out, Matrix of) { *out = malloc(sizeof of); *(Matrix*)*out = of; return OK; }
int cusparseCreateCsr(void** out, int64_t rows, int64_t cols, int64_t nnz, void* offsets, void* columns, void* values,
                      int offset_type, int column_type, int base, int type) {
  if (offset_type != 2 || column_type != 2 || base || type != 1) return REFUSED;
  return matrix(out, (Matrix){1, rows, cols, nnz, offsets, columns, values});
}
int cusparseCreateCoo(void** out, int64_t rows, int64_t cols, int64_t nnz, void* majors, void* columns, void* values,
                      int index_type, int base, int type) {
  if (index_type != 2 || base || type != 1) return REFUSED;
  return matrix(out, (Matrix){0, rows, cols, nnz, majors, columns, values});
}
int cusparseDestroySpMat(void* it) { free(it); return OK; }

static int dense(void** out, Dense of) { *out = malloc(sizeof of); *(Dense*)*out = of; return OK; }
int cusparseCreateDnVec(void** out, int64_t length, void* values, int type) {
  return type == 1 ? dense(out, (Dense){length, 1, values}) : REFUSED;
}
int cusparseCreateDnMat(void** out, int64_t rows, int64_t cols, int64_t ld, void* values, int type, int order) {
  return type == 1 && order == 2 && ld == cols ? dense(out, (Dense){rows, cols, values}) : REFUSED;
}
int cusparseDestroyDnVec(void* it) { free(it); return OK; }
int cusparseDestroyDnMat(void* it) { free(it); return OK; }
int cusparseDnVecSetValues(void* it, void* values) { ((Dense*)it)->values = values; return OK; }
int cusparseDnMatSetValues(void* it, void* values) { ((Dense*)it)->values = values; return OK; }

static int multiply(const double* alpha, const Matrix* a, const Dense* x, const double* beta, Dense* y, const int* buffer) {
  if (*alpha != 1 || *beta != 0 || *buffer != 77 || x->rows != a->cols || y->rows != a->rows) return REFUSED;
  for (int64_t i = 0; i < y->rows * y->cols; i++) y->values[i] = 0;
  for (int64_t row = 0, at = 0; at < a->nnz; at++) {
    if (!a->is_csr) row = a->major[at];
    else while (at >= a->major[row + 1]) row++;
    for (int64_t k = 0; k < x->cols; k++) y->values[row * y->cols + k] += a->values[at] * x->values[a->columns[at] * x->cols + k];
  }
  return OK;
}
#define OF_VECTORS void *handle, int op, void *alpha, void *a, void *x, void *beta, void *y, int type, int algorithm
int cusparseSpMV_bufferSize(OF_VECTORS, size_t* size) { *size = 8; return algorithm == 4 ? REFUSED : OK; }
int cusparseSpMV_preprocess(OF_VECTORS, int* buffer) { *buffer = 77; return OK; }
int cusparseSpMV(OF_VECTORS, int* buffer) { return op ? REFUSED : multiply(alpha, a, x, beta, y, buffer); }
#define OF_MATRICES void *handle, int op, int op_x, void *alpha, void *a, void *x, void *beta, void *y, int type, int algorithm
int cusparseSpMM_bufferSize(OF_MATRICES, size_t* size) { *size = 8; return OK; }
int cusparseSpMM_preprocess(OF_MATRICES, int* buffer) { *buffer = 77; return OK; }
int cusparseSpMM(OF_MATRICES, int* buffer) { return op || op_x ? REFUSED : multiply(alpha, a, x, beta, y, buffer); }
