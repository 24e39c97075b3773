"""The dense product beside the sparse one: float32 by cuBLAS as PyTorch calls it, TensorFloat-32 off. Needs a GPU."""

import numpy as np

from sparsesmith.matrix.pattern import Pattern


def dense_us(pattern: Pattern, num_dense_cols: int) -> float:
    """Microseconds of A B with all of A stored. Raises RuntimeError where it does not run."""
    from benchmarks.measure.task_libraries import library_us  # PyTorch is not everywhere where suites are measured.

    random = np.random.default_rng(1)
    a = pattern.to_scipy(random.uniform(-1, 1, pattern.nnz).astype(np.float32)).toarray()
    b = random.uniform(-1, 1, (pattern.num_cols, num_dense_cols)).astype(np.float32)
    return library_us("matmul", {"a": a, "b": b}, {})
