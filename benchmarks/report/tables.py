"""Tables of one suite."""

import math
from collections.abc import Sequence

from benchmarks.report.apart import apart_cells, apart_heads, timed_apart
from benchmarks.report.causes import cause
from benchmarks.report.results import (
    NNZ_CLASSES,
    Cache,
    Json,
    Kernel,
    Row,
    Suite,
    class_means,
    geometric_mean,
    mean_of_classes,
    median,
)
from benchmarks.report.targets import MIN_COPY_SHARE, bandwidth_rows, lost_share

CACHES: tuple[Cache, ...] = ("warm", "cold")


def means_table(suite: Suite) -> list[str]:
    """Geometric means by nonzeros, of splits and matrix classes, warm and cold."""
    groups: list[tuple[str, Sequence[Row]]] = [("all", suite.rows)]
    for split in ("train", "validation", "generated"):
        groups.append((split, [row for row in suite.rows if row.split == split]))
    for matrix_class in sorted({row.matrix_class for row in suite.rows}):
        groups.append((matrix_class, [row for row in suite.rows if row.matrix_class == matrix_class]))
    apart = timed_apart(suite.rows)
    lines = [
        f"| matrices | cache | < 1e5 nnz | 1e5-1e6 | >= 1e6 | mean of classes |{apart_heads(apart)}",
        f"|---|---|---|---|---|---|{'---|' * len(apart)}",
    ]
    for name, rows in groups:
        if rows:
            lines += [
                f"| {name} | {cache} | {' | '.join([*mean_cells(rows, cache), *apart_cells(rows, apart, cache)])} |"
                for cache in CACHES
            ]
    return lines


def mean_cells(rows: Sequence[Row], cache: Cache) -> list[str]:
    """Over the best routine (over CSR default), number of matrices, for each nnz class; the mean of classes."""
    best, default = class_means(rows, "best", cache), class_means(rows, "default", cache)
    counts = [sum(nnz.holds(row) for row in rows) for nnz in NNZ_CLASSES]
    cells = [
        f"{b:.2f}x ({d:.2f}x), {count}" if count else "-" for b, d, count in zip(best, default, counts, strict=True)
    ]
    return [*cells, f"{mean_of_classes(best):.2f}x ({mean_of_classes(default):.2f}x)"]


def losses(suite: Suite) -> list[str]:
    """Matrices below 0.98x before fallback, the worst first, each with a cause."""
    lost = sorted((row for row in suite.rows if row.is_lost), key=lambda row: row.speedup(fallback=False))
    return [
        f"- {row.name} ({row.matrix_class}, {row.nnz:,} nnz): {row.speedup(fallback=False):.2f}x of {row.best.name}"
        f"{f' with {row.kernel.family}' if row.kernel else ''}; {cause(suite, row)}"
        for row in lost
    ] or ["none"]


def bandwidth_table(suite: Suite) -> list[str]:
    """Stencils, FEM and banded matrices of 1e7 nonzeros and more against the copy bandwidth; empty without any."""
    rows = bandwidth_rows(suite)
    if not rows:
        return []
    lines = [
        "| matrix | nnz | family | format bytes, MB | vectors, MB | us | format bytes alone | with vectors | with vectors, cold |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        assert row.kernel
        rates = [row.gbs(row.kernel, vectors=False), row.gbs(row.kernel), row.gbs(row.kernel, "cold")]
        shares = [f"{rate:,.0f} GB/s, {_bold(rate / suite.copy_gbs, MIN_COPY_SHARE)}" for rate in rates]
        lines.append(
            f"| {row.name} | {row.nnz:,} | {row.kernel.family} | {row.kernel.format_bytes / 1e6:.1f} | "
            f"{row.vector_bytes / 1e6:.1f} | {row.kernel.time.warm_us:.2f} | {' | '.join(shares)} |"
        )
    note = (
        f"Shares of the copy bandwidth, {suite.copy_gbs:,.0f} GB/s (read and written bytes); warm unless cold is said: what "
        "lies in the L2 from the product before is not read from memory. x and y are counted once each."
    )
    return [*lines, "", note]


def placement_lines(suite: Suite) -> list[str]:
    """How far the time of a kernel moves with the addresses of its buffers; empty where all were timed at one placement."""
    placed = [(row.kernel.time.placements_us, row.name) for row in suite.rows if row.kernel]
    spreads = sorted((max(times) / min(times) - 1, name) for times, name in placed if times)
    if not spreads:
        return []
    widest, name = spreads[-1]
    number = max(len(times) for times, _ in placed)
    return [
        f"{len(spreads)} kernels were timed at {number} placements of their buffers: the slowest takes "
        f"{median(spread for spread, _ in spreads):.0%} longer than the fastest in the median, {widest:.0%} at most ({name})."
    ]


def break_even_table(suite: Suite) -> list[str]:
    """Products that repay tuning and conversion, quartiles by nnz class; empty where costs were not kept."""
    tuned = [(row, row.kernel) for row in suite.rows if row.kernel and row.search]
    if not tuned:
        return []
    lines = [
        "| matrices | tuning s, median | conversion ms, median | products against the best: quarter, median, three quarters | against CSR default |",
        "|---|---|---|---|---|",
    ]
    for nnz in NNZ_CLASSES:
        chosen = [(row, kernel) for row, kernel in tuned if nnz.holds(row)]
        if chosen:
            lines.append(
                f"| {nnz.name}, {len(chosen)} | {median(row.search.tuning_s for row, _ in chosen if row.search):.2f} | "
                f"{median(kernel.conversion_ms for _, kernel in chosen):.2f} | "
                f"{_quartiles([kernel.products_against_best for _, kernel in chosen])} | "
                f"{_quartiles([kernel.products_against_default for _, kernel in chosen])} |"
            )
    return lines


def repaid_line(suites: Sequence[Suite]) -> str:
    """In a sentence: after how many products a search has repaid itself; empty where costs were not kept."""
    told = []
    for suite in suites:
        counts = [row.kernel.products_against_best for row in suite.rows if row.kernel and row.search]
        if counts:
            quarter, half, three = ("never" if math.isinf(count) else _round(count) for count in _quarters(counts))
            told.append(f"{suite.title} {half} ({quarter} to {three})")
    if not told:
        return ""
    what = "Products after which search and conversion are repaid, against the best routine, for half of the matrices"
    return f"{what} (for a quarter, for three quarters): {'; '.join(told)}."


def rows_table(suite: Suite) -> list[str]:
    """Every matrix."""
    apart = timed_apart(suite.rows)
    lines = [
        "| matrix | nnz | split | default us | best routine | us | family | us | speed-up | cold |"
        f"{apart_heads(apart)} GB/s | of copy | candidates, GPU s | repaid after |",
        f"|---|---|---|---|---|---|---|---|---|---|{'---|' * len(apart)}---|---|---|---|",
    ]
    lines += [_row_line(suite, row, row.kernel, apart) for row in suite.rows if row.kernel]
    return [
        *lines,
        "",
        "Time with * : the interval did not close under 1 %. GB/s: bytes of the format and of the vectors over the warm time; "
        "small matrices stay in the L2. Repaid: products after which tuning and conversion are paid, against the best "
        "routine (against CSR default).",
    ]


def summary_line(title: str, suite: Suite, apart: Sequence[str]) -> str:
    """One line of the README's table."""
    cells = [f"{title}, {device_and_library(suite.device)}", *mean_cells(suite.unseen, "warm")]
    cells += [f"{lost_share(suite.unseen):.0%}", *apart_cells(suite.unseen, apart, "warm")]
    return f"| {' | '.join(cells)} |"


def device_and_library(device: Json) -> str:
    """`NVIDIA H200, cuSPARSE 12.6.3`; the name alone where no library was measured (the interpreter)."""
    version = device["versions"].get("cusparse")
    return f"{device['name']}, cuSPARSE {version}" if version else str(device["name"])


POLICY_HEADS = (
    "policy samples on matrices never trained on",
    "matrices",
    "compile",
    "pass@1",
    "worst matrix",
    "fastest of n over the best routine",
    "with fallback",
    "over the tuner's best",
    "the tuner's best over the best routine",
)


def policy_lines(suites: Sequence[Suite]) -> list[str]:
    """Samples of the shipped policy on matrices that it was not trained on; empty where none were graded."""
    lines = [f"| {' | '.join(POLICY_HEADS)} |", "|---" * len(POLICY_HEADS) + "|"]
    for suite in suites:
        rows = [row for row in suite.rows if row.split != "train" and row.policy_outcomes]
        if rows:
            lines.append(_policy_line(suite, rows))
    told = (
        "Compile and pass@1: share of all single samples at temperature 1; worst matrix: pass@1 there. The tuner's best is of its own "
        "search in the same run, of matrices where a sample passed."
    )
    return [*lines, "", told] if len(lines) > 2 else []


def _policy_line(suite: Suite, rows: Sequence[Row]) -> str:
    total = sum(sum(row.policy_outcomes.values()) for row in rows)
    refused = sum(row.policy_outcomes.get(name, 0) for row in rows for name in ("rejected", "compile_failed"))
    passed = [row.policy_outcomes.get("passed", 0) / sum(row.policy_outcomes.values()) for row in rows]
    speedups = [row.best.time.warm_us / row.policy_kernel.time.warm_us for row in rows if row.policy_kernel]
    over_tuner = [
        row.kernel.time.warm_us / row.policy_kernel.time.warm_us for row in rows if row.policy_kernel and row.kernel
    ]
    tuned = [row.speedup(fallback=False) for row in rows if row.kernel]
    with_fallback = [max(1.0, speedup) for speedup in speedups] + [1.0] * (len(rows) - len(speedups))
    return (
        f"| {suite.title}, {suite.device['name']}, {suite.commit[:8]} | {len(rows)} | {1 - refused / total:.1%} | {sum(passed) / len(rows):.1%} | {min(passed):.1%} | "
        f"{geometric_mean(speedups):.2f}x of {total // len(rows)} | {geometric_mean(with_fallback):.2f}x | {geometric_mean(over_tuner):.2f}x | "
        f"{geometric_mean(tuned):.2f}x |"
    )


def _row_line(suite: Suite, row: Row, kernel: Kernel, apart: Sequence[str]) -> str:
    rate = row.gbs(kernel)
    cells = [
        row.name,
        f"{row.nnz:,}",
        row.split,
        f"{row.default.time.warm_us:.2f}",
        row.best.name,
        f"{row.best.time.warm_us:.2f}{'' if row.best.time.stable else ' *'}",
        kernel.family,
        f"{kernel.time.warm_us:.2f}{'' if kernel.time.stable else ' *'}",
        f"{row.speedup(fallback=False):.2f}x",
        f"{row.speedup(cache='cold', fallback=False):.2f}x",
        *(
            "-" if name not in row.routines else f"{row.routines[name].warm_us / kernel.time.warm_us:.2f}x"
            for name in apart
        ),
        f"{rate:,.0f}",
        f"{rate / suite.copy_gbs:.0%}",
        f"{row.search.candidates}, {row.search.device_s:.1f}" if row.search else "-",
        f"{_count(kernel.products_against_best)} ({_count(kernel.products_against_default)})" if row.search else "-",
    ]
    return f"| {' | '.join(cells)} |"


def _quartiles(counts: Sequence[int | None]) -> str:
    return ", ".join(_count(None if math.isinf(count) else int(count)) for count in _quarters(counts))


def _quarters(counts: Sequence[int | None]) -> tuple[float, ...]:
    """A quarter of the counts are no larger than the first, half than the second, three quarters than the third."""
    ordered = sorted(math.inf if count is None else count for count in counts)
    return tuple(ordered[min(len(ordered) - 1, len(ordered) * quarter // 4)] for quarter in (1, 2, 3))


def _round(count: float) -> str:
    """Two digits, for a sentence."""
    return f"{float(f'{count:.2g}'):,.0f}"


def _count(products: int | None) -> str:
    return "never" if products is None else f"{products:.1e}"


def _bold(share: float, aim: float) -> str:
    return f"**{share:.0%}**" if share >= aim else f"{share:.0%}"
