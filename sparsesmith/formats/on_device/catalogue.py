"""Which formats are built on a device."""

from sparsesmith.formats.building.numbering import NATURAL
from sparsesmith.formats.format import MAX_OFFSET, Format, Layout, Parameters
from sparsesmith.formats.on_device.blocks import build_bsell, build_bsr
from sparsesmith.formats.on_device.csr_tiles import build_csr_tiles
from sparsesmith.formats.on_device.dia import build_dia
from sparsesmith.formats.on_device.machine import WARP, DeviceCsr, Machine
from sparsesmith.formats.on_device.padded import build_ell, build_sell
from sparsesmith.formats.on_device.row_bins import build_row_bins
from sparsesmith.matrix.pattern import Pattern

FORMATS = ("row_bins", "ell", "sell", "csr_tiles", "dia", "bsr", "bsell")


MAX_ROWS = MAX_OFFSET // WARP - 1
"""Some kernels give each row a warp, and count threads in 32 bits."""


def build_on_device(
    machine: Machine, csr: DeviceCsr, format_: Format, parameters: Parameters, pattern: Pattern
) -> Layout | None:
    """The layout with all its arrays in the machine's memory, bit for bit as `format_.build(pattern, parameters)`; None
    where only the host builds it.

    Raises InvalidProgram where the pattern does not fit, in the host's words.
    """
    if csr.num_rows > MAX_ROWS or _is_reordered(format_.name, parameters):
        return None
    match format_.name:
        case "row_bins":
            return build_row_bins(machine, csr, parameters)
        case "ell":
            return build_ell(machine, csr, parameters)
        case "sell":
            return build_sell(machine, csr, parameters)
        case "csr_tiles":
            return build_csr_tiles(machine, csr, parameters, pattern)
        case "dia":
            return build_dia(machine, csr, parameters)
        case "bsr":
            return build_bsr(machine, csr, parameters)
        case "bsell":
            return build_bsell(machine, csr, parameters)
        case _:
            return None


def _is_reordered(name: str, parameters: Parameters) -> bool:
    """Whether an order of rows or columns is to be found first."""
    asked = {"row_bins": "numbering", "sell": "rows"}.get(name)
    return asked is not None and parameters[asked] != NATURAL
