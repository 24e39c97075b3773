"""The operator in PETSc: a matrix that KSP, SNES, TS and SLEPc's solvers multiply with. Needs petsc4py.

from sparsesmith.petsc import matrix
ksp.setOperators(matrix(A))
"""

from sparsesmith.petsc.matrix import OperatorContext, matrix

__all__ = ["OperatorContext", "matrix"]
