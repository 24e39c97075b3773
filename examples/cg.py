"""Conjugate gradients: python cg.py A.operator, which `sparsesmith.tune(matrix, element_type="float64").save` wrote."""

import sys

import numpy as np
from scipy.sparse.linalg import cg

import sparsesmith

A = sparsesmith.load(sys.argv[1])
b = np.ones(A.shape[0])
x, trouble = cg(A, b, rtol=1e-8)
print(f"residual {np.linalg.norm(A @ x - b):.1e}, trouble {trouble}")
