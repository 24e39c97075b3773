"""Conjugate gradients on a GPU: python cg_cupy.py A.operator, a saved operator of float64, by cupyx's solver."""

import sys

import cupy
from cupyx.scipy.sparse.linalg import LinearOperator, cg

import sparsesmith

A = sparsesmith.load(sys.argv[1])
b = cupy.ones(A.shape[0])
x, trouble = cg(LinearOperator(A.shape, matvec=A.matvec, rmatvec=A.rmatvec, dtype=A.dtype), b, rtol=1e-8)
print(f"residual {float(cupy.linalg.norm(A @ x - b)):.1e}, trouble {trouble}")
