"""The format catalogue: every storage format that a kernel program may name."""

from collections.abc import Mapping

from sparsesmith.domain.formats.bsell import Bsell
from sparsesmith.domain.formats.bsr import Bsr
from sparsesmith.domain.formats.coo import Coo
from sparsesmith.domain.formats.csr import Csr
from sparsesmith.domain.formats.csr_merge import CsrMerge
from sparsesmith.domain.formats.csr_rowblocks import CsrRowblocks
from sparsesmith.domain.formats.csr_tiles import CsrTiles
from sparsesmith.domain.formats.dia import Dia
from sparsesmith.domain.formats.ell import Ell
from sparsesmith.domain.formats.format import Argument, Format, Layout, Parameters, complete_parameters
from sparsesmith.domain.formats.hubs import Hubs
from sparsesmith.domain.formats.hyb import Hyb
from sparsesmith.domain.formats.panels import Panels
from sparsesmith.domain.formats.row_bins import RowBins
from sparsesmith.domain.formats.sell import Sell
from sparsesmith.errors import InvalidProgram

__all__ = ["FORMATS", "Argument", "Format", "Layout", "Parameters", "complete_parameters", "format_named"]

_CATALOGUE: tuple[Format, ...] = (
    *(Csr(), CsrRowblocks(), CsrTiles(), CsrMerge(), Coo(), Ell(), Sell(), Dia(), Bsr()),
    Panels(),
    Hubs(),
    RowBins(),
    Bsell(),
    Hyb(),
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
