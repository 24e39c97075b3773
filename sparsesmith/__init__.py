"""sparsesmith: post a sparse matrix, get back a CUDA kernel tuned for it.

import sparsesmith
kernel = sparsesmith.tune(A)      # SciPy, CuPy or torch sparse matrix
y = kernel @ x                    # on the GPU that it was tuned for
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsesmith.client import AsyncClient, Client, TunedKernel, tune

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "TunedKernel", "__version__", "tune"]


def __getattr__(name: str) -> object:
    # Lazy: the services import the rest and need no HTTP client.
    if name in __all__:
        from sparsesmith import client

        return getattr(client, name)
    raise AttributeError(f"module 'sparsesmith' has no attribute {name!r}")
