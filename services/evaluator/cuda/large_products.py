"""Large matrix products of references on the GPU, by cuBLAS in float64, some rows at a time; on the host where cuBLAS
is not installed or memory is short."""

import logging

import cupy
import numpy as np
from cupy.cuda import memory

from services.evaluator.cuda.launch import LaunchRefused, cuda_errors
from sparsesmith.operations.operation import Float64Array

SLAB_BYTES = 1 << 30
"""Of rows of the first factor and of the result that are on the device at once."""

log = logging.getLogger(__name__)


def multiplied_on_device(a: Float64Array, b: Float64Array) -> Float64Array | None:
    """a @ b, on the current stream; None where it cannot be had here. Raises DeviceLost."""
    rows = max(1, SLAB_BYTES // (8 * (a.shape[1] + b.shape[1])))
    found = np.empty((a.shape[0], b.shape[1]))
    try:
        with cuda_errors():
            right = cupy.asarray(b)
            for first in range(0, len(a), rows):
                found[first : first + rows] = cupy.asnumpy(cupy.asarray(a[first : first + rows]) @ right)
    except (ImportError, OSError, RuntimeError, memory.OutOfMemoryError, LaunchRefused) as error:  # cuBLAS's among them
        log.info("large products of references are made on the host: %s", error)
        return None
    finally:
        right = None
        cupy.get_default_memory_pool().free_all_blocks()
    return found
