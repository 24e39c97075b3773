"""Clocks, power and throttling of one GPU, from NVML."""

import pynvml

from services.evaluator.measuring.disturbance import ClockReading

_THROTTLING = {
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal slowdown",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
}


class Clocks:
    """Reads one GPU by its PCI bus id (NVML ignores CUDA_VISIBLE_DEVICES). A driver without NVML gives zeros."""

    def __init__(self, pci_bus_id: str) -> None:
        self._device = _open(pci_bus_id)

    @property
    def max_sm_clock_mhz(self) -> int:
        """The highest SM clock of the part; 0 where the driver does not tell."""
        return self._ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM)

    @property
    def max_memory_clock_mhz(self) -> int:
        """The highest memory clock of the part; 0 where the driver does not tell."""
        return self._ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM)

    @property
    def driver_version(self) -> str:
        """`580.159.04`, or `unknown`."""
        if self._device is None:
            return "unknown"
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return "unknown"

    def read(self) -> ClockReading:
        """The state now; about a tenth of a millisecond."""
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return ClockReading(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            power_w=self._ask("nvmlDeviceGetPowerUsage") / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            throttling=tuple(name for bit, name in _THROTTLING.items() if reasons & bit),
        )

    def _ask(self, function: str, *arguments: int) -> int:
        """One NVML value, 0 where this driver or this virtual machine does not offer it."""
        if self._device is None:
            return 0
        try:
            return int(getattr(pynvml, function)(self._device, *arguments))
        except pynvml.NVMLError:
            return 0


def _open(pci_bus_id: str) -> object | None:
    try:
        pynvml.nvmlInit()
        handle: object = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    except pynvml.NVMLError:
        return None
    return handle
