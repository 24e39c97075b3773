"""Why a matrix was lost: derived by rule from what was measured of it, the first rule that holds.

The rules look at facts of the pattern and at rates; they name what bounds the kernel, not what would mend it.
"""

from benchmarks.report.results import Kernel, Row, Suite

NO_HEADROOM = 0.8
"""Share of the copy bandwidth at which a routine leaves a lossless kernel nothing to gain."""

LATENCY_SHARE = 0.15
"""Below this share of the copy bandwidth launches and chains of loads count, not bytes."""

B_SHARE = 0.75
"""Rows of B, one for each nonzero, at this share of the copy bandwidth bound a kernel (most come from caches)."""

UNEVEN = 6
"""Where little is moved, a row this many times the mean keeps a few threads busy while the others have ended."""

SKEW = 16
"""A row this many times the mean is long..."""

LONG_ROW = 512
"""...if it has this many nonzeros."""

GATHER_SECTORS = 0.5
"""Sectors of x a nonzero from which the gather is scattered: at most two lanes share one."""

SECTOR_BYTES = 32


def cause(suite: Suite, row: Row) -> str:
    """A clause for the list of losses."""
    kernel = row.kernel
    if kernel is None:
        failed = ", ".join(f"{count} {name}" for name, count in sorted(row.outcomes.items()))
        return f"no program passed ({failed})"
    if kernel.time.low_us <= row.best.time.high_us:
        return "within the noise: the intervals of both times overlap"
    return _bound_of(suite, row, kernel)


def _bound_of(suite: Suite, row: Row, kernel: Kernel) -> str:
    share = row.gbs(kernel) / suite.copy_gbs
    library_share = (row.csr_bytes + row.vector_bytes) / row.best.time.warm_us / 1e3 / suite.copy_gbs
    mean_row = row.nnz / max(1, row.num_rows)
    rows = f"the longest row has {row.structure.longest_row:,} nonzeros, the mean {mean_row:.1f}"
    if library_share >= NO_HEADROOM and "csr" in row.best.name:
        return f"no headroom: the routine moves CSR at {library_share:.0%} of the copy bandwidth"
    dense_gbs = _dense_gbs(suite, row, kernel)
    if suite.operation == "spmm" and dense_gbs >= B_SHARE * suite.copy_gbs:
        return f"reads of B: {dense_gbs:,.0f} GB/s with a row of B for each nonzero"
    if share < LATENCY_SHARE:
        spent = f"{share:.1%} of the copy bandwidth, {kernel.launches} launch{'es' if kernel.launches > 1 else ''}"
        if row.structure.longest_row >= UNEVEN * mean_row:
            return f"latency of uneven rows: {rows}; {spent}"
        return f"latency: too little work to fill the device ({spent})"
    if row.structure.longest_row >= max(LONG_ROW, SKEW * mean_row):
        return f"long rows: {rows}"
    sectors = row.structure.x_sectors_per_nnz
    if sectors >= GATHER_SECTORS:
        rate = sectors * row.nnz * SECTOR_BYTES / kernel.time.warm_us / 1e3
        return f"gather of x: {sectors:.2f} sectors a nonzero, {rate:,.0f} GB/s of sectors"
    return f"bytes: ours moves {share:.0%} of the copy bandwidth, the routine {library_share:.0%} (as CSR)"


def _dense_gbs(suite: Suite, row: Row, kernel: Kernel) -> float:
    """A row of B for each nonzero over the time, most of it from caches."""
    element_bytes = 8 if suite.element_type == "float64" else 4
    return row.nnz * suite.num_dense_cols * element_bytes / kernel.time.warm_us / 1e3
