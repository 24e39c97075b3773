"""Pruned layers, made here and DLMC's own: by how full they are, beside the best routine, the dense product and Sputnik."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.report.results import Cache, Row, Suite, geometric_mean
from benchmarks.report.tables import losses, means_table
from sparsesmith.elements import ELEMENTS

FILLED = ((0.0, 0.045), (0.045, 0.075), (0.075, 0.15), (0.15, 0.25), (0.25, 0.35), (0.35, 0.45), (0.45, 1.01))
"""Shares of stored entries: from, below."""
CACHES: tuple[Cache, ...] = ("warm", "cold")
LATE = 20
"""A cold dense product that takes so many times the warm one was waited for by the host, not computed: it is left out, by name."""

ELEMENT_BYTES: Mapping[str, int] = {name: element.num_bytes for name, element in ELEMENTS.items()}

Other = Callable[[Row, Cache], float | None]
"""Microseconds of what stands beside; None where it was not timed."""

_DENSE = (
    "Dense: cuBLAS in the same type with all entries stored, the fastest of the ways to ask PyTorch for it, TensorFloat-32 off. "
    "Warm, a small layer lies in the L2; cold, nothing does."
)
_SPUTNIK = (
    "Sputnik (Gale et al. 2020; sources {sources}), compiled by `benchmarks.measure.sputnik`: its own choice of a kernel, the faster of "
    "two orders of rows; each result was right within what kernels are allowed before it was timed, in graphs of calls as the "
    "dense product is."
)


def layers_section(suites: Sequence[Suite]) -> list[str]:
    """Empty without any."""
    told = (
        "Layers of a Transformer, a ResNet-50 and a language model, pruned by formula; searched for as all others. 16 bits: layers "
        f"of Llama's shapes. {_DENSE}"
    )
    return _section("Pruned layers", told, suites)


def dlmc_section(suites: Sequence[Suite]) -> list[str]:
    """Empty without any."""
    told = (
        "Layers of the Deep Learning Matrix Collection, as they were pruned in training; searched for as all others. Those of "
        f"the train side are what cost models and policies have seen. {_DENSE}"
    )
    return _section("DLMC", told, suites)


def _section(title: str, told: str, suites: Sequence[Suite]) -> list[str]:
    if not suites:
        return []
    parts = [f"## {title}", "", told, ""]
    for suite in suites:
        parts += [f"### {title}: {suite.title}", "", f"{suite.date}, commit {suite.commit}; `{suite.command}`.", ""]
        parts += [_SPUTNIK.format(sources=suite.sputnik), "", *_sputnik_lines(suite), ""] if suite.sputnik else []
        parts += [
            *_by_fill(suite),
            "",
            *_late_lines(suite),
            *means_table(suite),
            "",
            "Losses before fallback:",
            "",
            *losses(suite),
            "",
        ]
        parts += [*_matrices(suite), ""]
    return parts


def _sputnik_lines(suite: Suite) -> list[str]:
    """Where it is faster than what we answer, and where nothing is known of it."""
    timed = [(row, over) for row in suite.rows if (over := _over(row, "warm", _sputnik_us)) is not None]
    lost = [f"{row.name} ({over:.2f}x)" for row, over in timed if over < 1]
    lines = [
        f"Slower than Sputnik, warm, with fallback: {len(lost)} of {len(timed)}{': ' if lost else ''}{', '.join(lost)}."
    ]
    return [*lines, *(f"- {row.name}: {row.sputnik_failed}" for row in suite.rows if row.sputnik_failed)]


def _by_fill(suite: Suite) -> list[str]:
    others: list[tuple[str, Other]] = [("dense", _dense_us)]
    others += [("Sputnik", _sputnik_us)] if suite.sputnik else []
    heads = [
        head + suffix
        for name, _ in others
        for suffix in ("", ", cold")
        for head in (f"over {name}", f"best routine over {name}")
    ]
    heads += ["dense bytes over the kernel's", "CSR's over the kernel's"]
    lines = [
        f"| entries stored | matrices | over the best routine | {' | '.join(heads)} |",
        f"|---|---|---|{'---|' * len(heads)}",
    ]
    groups = [
        (f"{low:.1%} to {min(high, 1):.1%}", [row for row in suite.rows if low <= _filled(row) < high])
        for low, high in FILLED
    ]
    for name, chosen in [*groups, ("all", suite.rows)]:
        if chosen:
            best = geometric_mean(row.speedup() for row in chosen)
            over = [_means_over(chosen, cache, other) for _, other in others for cache in CACHES]
            over += _bytes_over(chosen, ELEMENT_BYTES[suite.element_type])
            lines.append(f"| {name} | {len(chosen)} | {best:.2f}x | {' | '.join(over)} |")
    return lines


def _matrices(suite: Suite) -> list[str]:
    """Every layer, the fullest last."""
    heads = ["layer", "rows x columns", "entries stored", "best routine", "us", "family", "us", "speed-up", "dense us"]
    heads += ["Sputnik us", "over Sputnik", "over Sputnik, cold"] if suite.sputnik else []
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in sorted(suite.rows, key=_filled):
        ours = [row.kernel.family, f"{row.kernel.time.warm_us:.2f}"] if row.kernel else ["-", "-"]
        cells = [
            row.name,
            f"{row.num_rows} x {row.num_cols}",
            f"{_filled(row):.1%}",
            row.best.name,
            f"{row.best.time.warm_us:.2f}",
            *ours,
            f"{row.speedup():.2f}x",
            _cell(row.dense_us),
        ]
        if suite.sputnik:
            cells += [_cell(row.sputnik_us), *(_cell(_over(row, cache, _sputnik_us), "x") for cache in CACHES)]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "Speed-ups with fallback."]


def _means_over(rows: Sequence[Row], cache: Cache, other: Other) -> str:
    """Ours with fallback, and the best routine, where the other was timed."""
    timed = [(row, over) for row in rows if (over := _over(row, cache, other)) is not None]
    if not timed:
        return "- | -"
    ours = geometric_mean(over for _, over in timed)
    routine = geometric_mean(over / row.speedup(cache=cache) for row, over in timed)
    return f"{ours:.2f}x | {routine:.2f}x"


def _bytes_over(rows: Sequence[Row], element_bytes: int) -> list[str]:
    """Of the dense matrix and of CSR over those of the kernel's format: what bytes alone would gain."""
    pairs = [(row, row.kernel.format_bytes) for row in rows if row.kernel]
    if not pairs:
        return ["-", "-"]
    dense = geometric_mean(element_bytes * row.num_rows * row.num_cols / stored for row, stored in pairs)
    return [f"{dense:.2f}x", f"{geometric_mean(row.csr_bytes / stored for row, stored in pairs):.2f}x"]


def _over(row: Row, cache: Cache, other: Other) -> float | None:
    """Ours, with fallback, over the other."""
    us = other(row, cache)
    return None if us is None else us * row.speedup(cache=cache) / row.best.time.us(cache)


def _dense_us(row: Row, cache: Cache) -> float | None:
    if cache == "warm":
        return row.dense_us
    return None if _is_late(row) else row.dense_cold_us


def _is_late(row: Row) -> bool:
    return bool(row.dense_us and row.dense_cold_us and row.dense_cold_us > LATE * row.dense_us)


def _late_lines(suite: Suite) -> list[str]:
    names = [row.name for row in suite.rows if _is_late(row)]
    return [f"Left out of cold dense times, for the host was late: {', '.join(names)}.", ""] if names else []


def _sputnik_us(row: Row, cache: Cache) -> float | None:
    return row.sputnik_us if cache == "warm" else row.sputnik_cold_us


def _filled(row: Row) -> float:
    return row.nnz / (row.num_rows * row.num_cols)


def _cell(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f}{unit}"
