"""y = A x."""

from sparsesmith.operations.operand import Operand
from sparsesmith.operations.product import SparseProduct
from sparsesmith.operations.texts import program_texts

__all__ = ["SPMV"]

SPMV = SparseProduct(
    name="spmv",
    version=1,
    header_id=0,
    formula="y = A x",
    axes=(),
    operands=(
        Operand("x", "input", ("num_cols",), meaning="dense vector, length num_cols"),
        Operand(
            "y",
            "output",
            ("num_rows",),
            meaning="dense vector, length num_rows; holds garbage at the start, every entry must be written",
        ),
    ),
    programs=program_texts(__name__, "plain_csr_vector", "plain_csr_scalar", "plain_coo_atomic"),
    naive="plain_csr_scalar",
    transposed="spmv_t",
)
