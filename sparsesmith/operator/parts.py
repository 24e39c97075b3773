"""What an operator has of its kernel beside the program: what need not be built or compiled again."""

from dataclasses import dataclass

from sparsesmith.formats.format import Layout
from sparsesmith_proto.message import Architecture


@dataclass(frozen=True)
class Parts:
    """All of it may be unknown."""

    layout: Layout | None = None
    """The storage format built for the pattern."""
    cubin: bytes = b""
    """Machine code of the program; empty: it is compiled when a GPU first needs it."""
    architecture: Architecture | None = None
    """That the machine code is for."""


NO_PARTS = Parts()
