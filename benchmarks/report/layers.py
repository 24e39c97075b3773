"""Pruned layers, a suite of its own: by how full they are, beside the best routine and the dense product."""

from collections.abc import Sequence

from benchmarks.report.results import Cache, Row, Suite, geometric_mean
from benchmarks.report.tables import losses, means_table

FILLED = ((0.0, 0.045), (0.045, 0.075), (0.075, 0.15), (0.15, 0.25), (0.25, 0.35), (0.35, 0.45), (0.45, 1.01))
"""Shares of stored entries: from, below."""
CACHES: tuple[Cache, ...] = ("warm", "cold")


def layers_section(suites: Sequence[Suite]) -> list[str]:
    """Empty without any."""
    if not suites:
        return []
    parts = [
        "## Pruned layers",
        "",
        "Layers of a Transformer, a ResNet-50 and a language model, pruned by formula, and DLMC's own; searched for as all "
        "others. 16 bits: layers of Llama's shapes. Dense: cuBLAS in the same type with all entries stored, the fastest of the "
        "ways to ask PyTorch for it, TensorFloat-32 off. Warm, a small layer lies in the L2; cold, nothing does.",
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
        "| entries stored | matrices | over the best routine | over dense | best routine over dense | over dense, cold "
        "| best routine over dense, cold |",
        "|---|---|---|---|---|---|---|",
    ]
    for low, high in FILLED:
        chosen = [row for row in rows if low <= row.nnz / (row.num_rows * row.num_cols) < high]
        if chosen:
            best = geometric_mean(row.speedup() for row in chosen)
            over = " | ".join(_over_dense(chosen, cache) for cache in CACHES)
            lines.append(f"| {low:.1%} to {min(high, 1):.1%} | {len(chosen)} | {best:.2f}x | {over} |")
    return lines


def _over_dense(rows: Sequence[Row], cache: Cache) -> str:
    """Ours with fallback, and the best routine, where the dense product was timed."""
    timed = [(row, us) for row in rows if (us := row.dense_us if cache == "warm" else row.dense_cold_us) is not None]
    if not timed:
        return "- | -"
    ours = geometric_mean(us * row.speedup(cache=cache) / row.best.time.us(cache) for row, us in timed)
    routine = geometric_mean(us / row.best.time.us(cache) for row, us in timed)
    return f"{ours:.2f}x | {routine:.2f}x"
