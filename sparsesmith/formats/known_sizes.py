"""Sizes of a format that follow from the pattern alone, in less time than the format takes to build."""

from collections.abc import Callable, Mapping

from sparsesmith.formats.dia import num_diagonals
from sparsesmith.formats.format import Format
from sparsesmith.matrix.pattern import Pattern

_SIZES: Mapping[str, Mapping[str, Callable[[Pattern], int]]] = {
    "ell": {"width": lambda pattern: int(pattern.row_lengths.max())},
    "dia": {"num_diagonals": num_diagonals},
}
"""Format -> size -> how it is found. Of other sizes a format tells when it is built."""


def known_sizes(format_: Format, pattern: Pattern) -> dict[str, int]:
    """Those of A, and what is known of the format's own; compressed values have the sizes of their format."""
    own = _SIZES.get(format_.name, {})
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz}
    return sizes | {name: size(pattern) for name, size in own.items()}
