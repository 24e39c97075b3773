"""One GPU for each evaluator of a machine, or one for so many sharers, without anyone counting.

Containers of one compose service are all given the same GPUs, and a second evaluator on a GPU would spoil the times of
the first. So each evaluator locks a free GPU in a folder that they share; the kernel lets go when it ends. Sharers lock
a slot of one instead, and take turns on it (`gpu_turn`).
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from sparsesmith.errors import Unavailable


def claim_gpu(
    folder: Path, num_gpus: int, is_sound: Callable[[int], bool] = lambda index: True, sharers: int = 1
) -> int:
    """Index of a GPU that no other evaluator of the folder has, or that fewer than so many sharers have; ours until
    this process ends.

    The last comes first: generator and trainer use the first GPU. Sharers take one each before a second comes to any.
    `is_sound`: whether one may be taken at all. Raises Unavailable where none is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sound = [index for index in range(num_gpus) if is_sound(index)]
    for slot in range(sharers):
        for index in reversed(sound):
            if _claimed(folder / f"gpu-{index}", slot, is_shared=sharers > 1):
                return index
    faulty = f", {num_gpus - len(sound)} in quarantine" if len(sound) < num_gpus else ""
    each = "an evaluator" if sharers == 1 else f"{sharers} evaluators, or one that shares with none"
    raise Unavailable(
        f"{num_gpus} GPUs{faulty}, each with {each}: start fewer evaluators",
        field="gpu_claims_dir",
        value=folder,
        limit=num_gpus * sharers,
    )


def _claimed(gpu: Path, slot: int, *, is_shared: bool) -> bool:
    """Who shares with none and sharers keep each other away."""
    whole = _locked(gpu, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
    if whole is None or not is_shared:
        return whole is not None
    if _locked(gpu.with_suffix(f".slot-{slot}"), fcntl.LOCK_EX) is None:
        os.close(whole)
        return False
    return True


def _locked(path: Path, kind: int) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
