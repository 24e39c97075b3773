"""y = A^T x, of A as it is stored."""

from sparsesmith.operations.operand import Operand
from sparsesmith.operations.product import TransposedProduct
from sparsesmith.operations.texts import program_texts

__all__ = ["SPMV_T"]

SPMV_T = TransposedProduct(
    name="spmv_t",
    version=1,
    header_id=2,
    formula="y = A^T x",
    axes=(),
    operands=(
        Operand("x", "input", ("num_rows",), meaning="dense vector, length num_rows"),
        Operand(
            "y",
            "output",
            ("num_cols",),
            meaning="dense vector, length num_cols; holds garbage at the start, every entry must be written",
        ),
    ),
    programs=program_texts(__name__, "plain_csr_scatter", "plain_csc_scalar"),
    naive="plain_csc_scalar",
)
