"""ECC of one GPU, from NVML: makes no CUDA context, so the evaluator's own process may ask."""

import logging

import pynvml

from services.evaluator.cuda.installed import handle_of
from services.evaluator.memory_errors import Counts

log = logging.getLogger(__name__)

KINDS = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}


class EccCounters:
    """Errors since the driver was loaded; a kind that this driver does not count is left out."""

    def __init__(self, visible_device: str) -> None:
        """By a name as in CUDA_VISIBLE_DEVICES: an index in the order of the bus, or a UUID."""
        self._device = handle_of(visible_device)

    @property
    def uuid(self) -> str:
        """`GPU-...`, which stays when machines and indices change; empty where NVML does not know the GPU."""
        return "" if self._device is None else str(pynvml.nvmlDeviceGetUUID(self._device))

    @property
    def is_counting(self) -> bool:
        """Whether ECC is on."""
        if self._device is None:
            return False
        try:
            return bool(pynvml.nvmlDeviceGetEccMode(self._device)[0] == pynvml.NVML_FEATURE_ENABLED)
        except pynvml.NVMLError:
            return False

    def read(self) -> Counts:
        found = {}
        for name, kind in KINDS.items() if self.is_counting else ():
            try:
                count = pynvml.nvmlDeviceGetTotalEccErrors(self._device, kind, pynvml.NVML_VOLATILE_ECC)
            except pynvml.NVMLError as error:
                log.debug("%s errors are not counted: %s", name, error)
            else:
                found[name] = int(count)
        return found
