"""C = A B."""

from sparsesmith.operations.operand import Operand
from sparsesmith.operations.product import SparseProduct
from sparsesmith.operations.texts import program_texts

__all__ = ["SPMM"]

SPMM = SparseProduct(
    name="spmm",
    version=1,
    header_id=1,
    formula="C = A B, B row-major with num_dense_cols = {num_dense_cols} columns",
    axes=("num_dense_cols",),
    operands=(
        Operand(
            "b", "input", ("num_cols", "num_dense_cols"), meaning="dense matrix, row-major, num_cols by num_dense_cols"
        ),
        Operand(
            "c",
            "output",
            ("num_rows", "num_dense_cols"),
            meaning="dense matrix, row-major, num_rows by num_dense_cols; garbage at the start",
        ),
        Operand("num_dense_cols", "size", meaning="columns of b and c"),
    ),
    programs=program_texts(__name__, "plain_csr_vector", "plain_csr_scalar"),
    naive="plain_csr_scalar",
)
