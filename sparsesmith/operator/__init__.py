"""The operator: a matrix with its tuned kernel, as solvers and training loops hold it. See docs/operator.md."""

from sparsesmith.operator.operator import Operator, load
from sparsesmith.operator.task_kernel import TaskKernel

__all__ = ["Operator", "TaskKernel", "load"]
