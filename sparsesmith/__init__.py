"""sparsesmith: post a sparse matrix, get back a CUDA kernel tuned for it.

import sparsesmith
A = sparsesmith.tune(matrix)      # SciPy, CuPy or torch sparse matrix
y = A @ x                         # on the GPU that it was tuned for
dot = sparsesmith.tune_task("dot", n=2**20)   # a task without a matrix
total = dot(x, y)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsesmith.client import AsyncClient, Client, TunedKernel, tune, tune_task
    from sparsesmith.operator import Operator, TaskKernel, load

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Operator", "TaskKernel", "TunedKernel", "__version__", "load", "tune", "tune_task"]

_OF_THE_OPERATOR = ("Operator", "TaskKernel", "load")


def __getattr__(name: str) -> object:
    # Lazy: the services import the rest and need no HTTP client.
    if name in __all__:
        return getattr(
            import_module("sparsesmith.operator" if name in _OF_THE_OPERATOR else "sparsesmith.client"), name
        )
    raise AttributeError(f"module 'sparsesmith' has no attribute {name!r}")
