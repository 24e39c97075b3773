"""The least that a product takes: what has to be read and written, copied at the device's bandwidth."""

from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import DeviceDescription


def floor_us(problem: Problem, device: DeviceDescription) -> float:
    """Not a bound where the data stay in a cache."""
    return problem.floor.bytes_moved / (device.copy_bandwidth_gbs * 1e3)
