"""One GPU for each evaluator of a machine, without anyone counting.

Containers of one compose service are all given the same GPUs, and a second evaluator on a GPU would spoil the times of
the first. So each evaluator locks a free GPU in a folder that they share; the kernel lets go when it ends.
"""

import fcntl
import os
from pathlib import Path

from sparsesmith.errors import Unavailable


def claim_gpu(folder: Path, num_gpus: int) -> int:
    """Index of a GPU that no other evaluator of the folder has, ours until this process ends.

    The last comes first: generator and trainer use the first GPU. Raises Unavailable where all are taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for index in reversed(range(num_gpus)):
        handle = os.open(folder / f"gpu-{index}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return index
        except BlockingIOError:
            os.close(handle)
    raise Unavailable(
        f"{num_gpus} GPUs, each with an evaluator: start fewer evaluators",
        field="gpu_claims_dir",
        value=folder,
        limit=num_gpus,
    )
