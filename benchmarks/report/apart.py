"""Speed-ups over one routine of the library by itself: what others compare with, whichever routine is the best."""

import math
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.report.results import Cache, Row, class_means_over, mean_of_classes

APART: Mapping[str, str] = {"cusparse_spmvop_alg2": "SpMVOp ALG2", "cusparse_csr_alg2": "CSR ALG2"}
"""Routines, and what they are called in tables."""


def timed_apart(rows: Iterable[Row]) -> list[str]:
    """Those that were timed on any matrix."""
    known = {name for row in rows for name in row.routines}
    return [name for name in APART if name in known]


def apart_heads(apart: Sequence[str]) -> str:
    """The end of a table's first line."""
    return "".join(f" over {APART[name]} alone |" for name in apart)


def apart_cells(rows: Sequence[Row], apart: Sequence[str], cache: Cache) -> list[str]:
    """Over each routine: the nnz classes, then their mean."""
    return [_cell(class_means_over(rows, name, cache)) for name in apart]


def _cell(means: Sequence[float]) -> str:
    if all(math.isnan(mean) for mean in means):
        return "-"
    by_class = " / ".join("-" if math.isnan(mean) else f"{mean:.2f}" for mean in means)
    return f"{by_class}, {mean_of_classes(means):.2f}x"
