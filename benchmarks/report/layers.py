"""Pruned layers, a suite of its own: by how full they are, beside the best routine and the dense product."""

from collections.abc import Sequence

from benchmarks.report.results import Row, Suite, geometric_mean
from benchmarks.report.tables import losses, means_table

FILLED = ((0.0, 0.05), (0.05, 0.1), (0.1, 0.3), (0.3, 1.01))
"""Shares of stored entries: from, below."""


def layers_section(suites: Sequence[Suite]) -> list[str]:
    """Empty without any."""
    if not suites:
        return []
    parts = [
        "## Pruned layers",
        "",
        "Layers of a Transformer, a ResNet-50 and a language model, pruned by formula, and DLMC's own; searched for as all "
        "others. Dense: cuBLAS float32 with all entries stored, TensorFloat-32 off.",
        "",
    ]
    for suite in suites:
        parts += [
            f"### Pruned layers: {suite.title}",
            "",
            f"{suite.date}, commit {suite.commit}; `{suite.command}`.",
            "",
        ]
        parts += [*_by_fill(suite.rows), "", *means_table(suite), "", "Losses before fallback:", "", *losses(suite), ""]
    return parts


def _by_fill(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| entries stored | matrices | over the best routine | over dense | best routine over dense |",
        "|---|---|---|---|---|",
    ]
    for low, high in FILLED:
        chosen = [row for row in rows if low <= row.nnz / (row.num_rows * row.num_cols) < high]
        if chosen:
            best = geometric_mean(row.speedup() for row in chosen)
            lines.append(f"| {low:.0%} to {min(high, 1):.0%} | {len(chosen)} | {best:.2f}x | {_over_dense(chosen)} |")
    return lines


def _over_dense(rows: Sequence[Row]) -> str:
    """Ours with fallback, and the best routine, where the dense product was timed."""
    timed = [(row, row.dense_us) for row in rows if row.dense_us is not None]
    if not timed:
        return "- | -"
    ours = geometric_mean(dense_us * row.speedup() / row.best.time.warm_us for row, dense_us in timed)
    routine = geometric_mean(dense_us / row.best.time.warm_us for row, dense_us in timed)
    return f"{ours:.2f}x | {routine:.2f}x"
