"""PETSc's conjugate gradients: python petsc_cg.py A.operator, an operator of float64."""

import sys

from petsc4py import PETSc

import sparsesmith
from sparsesmith.petsc import matrix

A = matrix(sparsesmith.load(sys.argv[1]))
x, b = A.createVecs()
b.set(1)
ksp = PETSc.KSP().create(PETSc.COMM_SELF)
ksp.setOperators(A)
ksp.setType("cg")
ksp.getPC().setType("jacobi")
ksp.solve(b, x)
print(f"converged after {ksp.getIterationNumber()} iterations, residual {ksp.getResidualNorm():.1e}")
