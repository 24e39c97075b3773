"""A legal program whose parts a test can change."""

SIGNATURE = (
    "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, "
    "const float* x, float* y"
)
BODY = "  int row = blockIdx.x * 128 + threadIdx.x;\n  if (row < num_rows) y[row] = 0;\n"


def make_program(
    *,
    format_: str = "//@ format csr",
    launch: str = "//@ launch spmv grid=ceil_div(num_rows,128) block=128",
    before: str = "",
    head: str = 'extern "C" __global__ void spmv',
    signature: str = SIGNATURE,
    body: str = BODY,
) -> str:
    """Lines: 1 format, 2 launch, 3 on `before`, then the kernel."""
    return f"{format_}\n{launch}\n{before}{head}({signature}) {{\n{body}}}\n"
