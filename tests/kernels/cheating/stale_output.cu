// expect: mismatch
// workload: spmv float32
// Writes nothing and hopes for an earlier kernel's result.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {}
