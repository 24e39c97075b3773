"""Where Python loaders that are in users' hands look for it; it lives in `sparsesmith.operator.matrices`."""

from sparsesmith.operator.matrices import SparseMatrix, to_scipy

__all__ = ["SparseMatrix", "to_scipy"]
