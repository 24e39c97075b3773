"""One GPU for each evaluator of a machine, without anyone counting.

Containers of one compose service are all given the same GPUs, and a second evaluator on a GPU would spoil the times of
the first. So each evaluator locks a free GPU in a folder that they share; the kernel lets go when it ends.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from sparsesmith.errors import Unavailable


def claim_gpu(folder: Path, num_gpus: int, is_sound: Callable[[int], bool] = lambda index: True) -> int:
    """Index of a GPU that no other evaluator of the folder has, ours until this process ends.

    The last comes first: generator and trainer use the first GPU. `is_sound`: whether one may be taken at all. Raises
    Unavailable where none is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sound = [index for index in range(num_gpus) if is_sound(index)]
    for index in reversed(sound):
        handle = os.open(folder / f"gpu-{index}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return index
        except BlockingIOError:
            os.close(handle)
    faulty = f", {num_gpus - len(sound)} in quarantine" if len(sound) < num_gpus else ""
    raise Unavailable(
        f"{num_gpus} GPUs{faulty}, each with an evaluator: start fewer evaluators",
        field="gpu_claims_dir",
        value=folder,
        limit=num_gpus,
    )
