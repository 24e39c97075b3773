"""Which cost model is for which device."""

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sparsesmith.tuning.cost import AnalyticCost, CostModel

if TYPE_CHECKING:
    from sparsesmith.tuning.boosted import BoostedCost

log = logging.getLogger(__name__)


class CostModels:
    """A learned model for the devices that it serves and the operations that it was trained on, the analytic estimate
    for all others.

    The model is loaded when it is first asked for. A folder that is not there or cannot be loaded, or a machine where
    LightGBM does not start (it needs the system's libgomp), is a word in the log, never a failure.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._analytic = AnalyticCost()
        self._device: str | None = None

    @property
    def knows_a_device(self) -> bool:
        """Whether one has shown itself."""
        return self._device is not None

    def expected(self, operation: str = "spmv", device: str | None = None) -> CostModel:
        """Before a device has shown itself: of the one that is asked for; else of the device seen last; at first, the
        learned one."""
        if (device or self._device) is not None:
            return self._of(device or self._device, operation)
        return self._learned if self._learned is not None and self._learned.knows(operation) else self._analytic

    def on(self, device: str, operation: str = "spmv") -> CostModel:
        """Of a device, by the name that evaluators give it."""
        self._device = device
        return self._of(device, operation)

    def _of(self, device: str | None, operation: str) -> CostModel:
        learned = self._learned
        if device is None or learned is None or not learned.serves(device) or not learned.knows(operation):
            return self._analytic
        return learned

    @cached_property
    def _learned(self) -> "BoostedCost | None":
        if self._folder is None:
            return None
        try:
            from sparsesmith.tuning.boosted import load_boosted_cost

            return load_boosted_cost(self._folder)
        except (ImportError, OSError, ValueError) as error:
            log.warning("no cost model at %s, programs are ranked by estimates: %s", self._folder, error)
            return None
