"""A GPU by its name as in CUDA_VISIBLE_DEVICES, from NVML: makes no CUDA context, so any process may ask."""

import pynvml


def handle_of(visible_device: str) -> object | None:
    """NVML's handle of an index in the order of the bus, or of a UUID; None where NVML does not know the GPU."""
    try:
        pynvml.nvmlInit()
        if visible_device.isdecimal():
            by_index: object = pynvml.nvmlDeviceGetHandleByIndex(int(visible_device))
            return by_index
        by_uuid: object = pynvml.nvmlDeviceGetHandleByUUID(visible_device)
    except pynvml.NVMLError:
        return None
    return by_uuid


def memory_bytes(visible_device: str) -> int:
    """All memory of a GPU; 0 where NVML does not tell."""
    handle = handle_of(visible_device)
    try:
        return 0 if handle is None else int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return 0
