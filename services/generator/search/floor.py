"""The least that a product takes: what has to be read and written, copied at the device's bandwidth."""

from sparsesmith.elements import ELEMENTS
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.program.binding import problem_sizes
from sparsesmith_proto.kernel import DeviceDescription, Workload


def floor_us(pattern: Pattern, workload: Workload, device: DeviceDescription) -> float:
    """Values (unless they are fixed: then none need be read) and each operand once. Not a bound for a matrix that stays
    in a cache, nor for the columns of x that no nonzero meets."""
    sizes = problem_sizes(workload, pattern)
    operands = operands_with_role(operation_named(workload.operation), "input", "inout", "output")
    elements = sum(operand.num_elements(sizes) for operand in operands)
    elements += 0 if workload.values is not None else pattern.nnz
    num_bytes = elements * ELEMENTS[workload.element_type].num_bytes
    return num_bytes / (device.copy_bandwidth_gbs * 1e3)
