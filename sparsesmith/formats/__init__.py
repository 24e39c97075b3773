"""The format catalogue: every storage format that a kernel program may name."""

from collections.abc import Mapping

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.bitmap import Bitmap
from sparsesmith.formats.bsell import Bsell
from sparsesmith.formats.bsr import Bsr
from sparsesmith.formats.cells import Cells
from sparsesmith.formats.coo import Coo
from sparsesmith.formats.csc import Csc
from sparsesmith.formats.csr import Csr
from sparsesmith.formats.csr_distinct import CsrDistinct
from sparsesmith.formats.csr_merge import CsrMerge
from sparsesmith.formats.csr_rowblocks import CsrRowblocks
from sparsesmith.formats.csr_tiles import CsrTiles
from sparsesmith.formats.dia import Dia
from sparsesmith.formats.ell import Ell
from sparsesmith.formats.format import Argument, Format, Layout, Parameters, complete_parameters
from sparsesmith.formats.hubs import Hubs
from sparsesmith.formats.hyb import Hyb
from sparsesmith.formats.panels import Panels
from sparsesmith.formats.row_bins import RowBins
from sparsesmith.formats.sell import Sell

__all__ = ["FORMATS", "Argument", "Format", "Layout", "Parameters", "complete_parameters", "format_named"]

_CATALOGUE: tuple[Format, ...] = (
    *(Csr(), CsrRowblocks(), CsrTiles(), CsrMerge(), Coo(), Ell(), Sell(), Dia(), Bsr()),
    Panels(),
    Hubs(),
    RowBins(),
    Bsell(),
    Hyb(),
    Cells(),
    Csc(),
    CsrDistinct(),
    Bitmap(),
)

FORMATS: Mapping[str, Format] = {format_.name: format_ for format_ in _CATALOGUE}
"""Every storage format by its name."""


def format_named(name: str) -> Format:
    """The format of that name. Raises InvalidProgram for an unknown one."""
    format_ = FORMATS.get(name)
    if format_ is None:
        known = ", ".join(FORMATS)
        raise InvalidProgram(f"unknown format {name!r} (known: {known})", field="format", value=name, limit=known)
    return format_
