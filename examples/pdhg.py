"""A linear programme, min c x with A x = b and x >= 0, by PDHG: python pdhg.py A.operator, which
`sparsesmith.tune(A, element_type="float64", transposed="both").save("A.operator")` wrote."""

import sys

import numpy as np
from scipy.sparse.linalg import svds

import sparsesmith

A = sparsesmith.load(sys.argv[1])
c, b = np.ones(A.shape[1]), A @ np.ones(A.shape[1])
x, y, step = np.zeros(A.shape[1]), np.zeros(A.shape[0]), 0.9 / svds(A, k=1, return_singular_vectors=False)[0]
for _ in range(4000):
    before, x = x, np.maximum(x - step * (c - A.T @ y), 0)
    y += step * (b - A @ (2 * x - before))
print(f"objective {c @ x:.6g}, residual {np.linalg.norm(A @ x - b):.1e}")
