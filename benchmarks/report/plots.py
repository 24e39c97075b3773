"""Plots of a suite, as SVG files that are the same bytes for the same results.

Each file carries a digest of the results and of this module, so that its freshness can be checked without plotting. What
a colour says a marker's shape says, too; the colours are those of Okabe and Ito, told apart by all eyes.
"""

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.origin import ROOT
from benchmarks.report.results import NNZ_CLASSES, Kernel, NnzClass, Row, Suite, geometric_mean, median

PLOTS = ROOT / "benchmarks" / "plots"

BLUE, ORANGE, GREEN, BLACK, GREY = "#0072B2", "#D55E00", "#009E73", "#000000", "#888888"
STYLE = {
    "svg.hashsalt": "sparsesmith",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.facecolor": "white",
}
NNZ_MARKS = dict(zip(NNZ_CLASSES, (("o", BLUE), ("s", ORANGE), ("^", GREEN)), strict=True))

REGULAR = ("stencil", "FEM", "banded")
"""Beginnings of the matrix classes that should run at the speed of memory."""

MAX_PRODUCTS = 1e8
LEGEND_ROOM = 100
"""Above the curves of total times, as a factor."""


@dataclass(frozen=True)
class Plot:
    """One kind of plot."""

    name: str
    caption: str
    figure: Callable[[Suite], Any]
    """Gives a matplotlib figure."""
    applies: Callable[[Suite], bool] = lambda suite: any(row.kernel for row in suite.rows)

    def path(self, suite: Suite) -> Path:
        return PLOTS / f"{self.name}-{suite.slug}.svg"


def is_regular(row: Row) -> bool:
    """Stencils, FEM and banded matrices."""
    return row.matrix_class.startswith(REGULAR)


def digest(suite: Suite) -> str:
    """Of what a plot is made from: the results and this module."""
    return hashlib.sha256(_own_text() + repr(suite).encode()).hexdigest()


def is_fresh(plot: Plot, suite: Suite) -> bool:
    """Whether the committed file was made from these results."""
    path = plot.path(suite)
    return path.exists() and digest(suite) in path.read_text(encoding="utf-8")


def svg(plot: Plot, suite: Suite) -> str:
    """The file's text."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure: Figure = plot.figure(suite)
        out = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": plot.caption, "Description": f"made from {digest(suite)}"}
        figure.savefig(out, format="svg", metadata=metadata, bbox_inches="tight")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def speedups(suite: Suite) -> Any:
    """Every matrix, sorted by its speed-up over the best routine, before fallback."""
    rows = sorted((row for row in suite.rows if row.kernel), key=lambda row: row.speedup(fallback=False))
    figure, axes = _figure(9, 4.2)
    for place, row in enumerate(rows):
        best, default = (row.speedup(against, fallback=False) for against in ("best", "default"))
        axes.plot([place, place], [best, default], color="#cccccc", linewidth=0.8, zorder=1)
        axes.plot(place, default, marker="_", color=GREY, markersize=5, zorder=2)
    for nnz, (marker, colour) in NNZ_MARKS.items():
        chosen = [(place, row.speedup(fallback=False)) for place, row in enumerate(rows) if nnz.holds(row)]
        _dots(axes, chosen, marker, colour, f"nnz {nnz.name}, over the best routine")
    axes.plot([], [], marker="_", color=GREY, linestyle="", label="over CSR default")
    mean = geometric_mean(row.speedup(fallback=False) for row in rows)
    axes.axhline(mean, color=BLACK, linewidth=0.8, linestyle="--", label=f"geometric mean over the best: {mean:.2f}x")
    axes.axhline(1, color=BLACK, linewidth=1)
    _speedup_axis(axes.yaxis, axes.set_yscale)
    axes.set_ylabel("speed-up before fallback, warm")
    axes.set_xlabel(f"{len(rows)} matrices, sorted")
    axes.set_xticks([])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3, fontsize=9)
    axes.set_title(f"{suite.title}, {suite.device['name']}: speed-up over cuSPARSE by matrix")
    return figure


def speedups_by_class(suite: Suite) -> Any:
    """Every matrix in the row of its class, coloured by its nonzeros."""
    groups: dict[str, list[Row]] = {}
    for row in suite.rows:
        if row.kernel:
            groups.setdefault(row.matrix_class, []).append(row)
    means = {name: geometric_mean(row.speedup(fallback=False) for row in rows) for name, rows in groups.items()}
    names = sorted(groups, key=means.__getitem__)
    figure, axes = _figure(9, 0.9 + 0.27 * len(names))
    for nnz, (marker, colour) in NNZ_MARKS.items():
        chosen = [
            (row.speedup(fallback=False), place)
            for place, name in enumerate(names)
            for row in groups[name]
            if nnz.holds(row)
        ]
        _dots(axes, chosen, marker, colour, f"nnz {nnz.name}")
    axes.plot([means[name] for name in names], range(len(names)), marker="|", markersize=13, markeredgewidth=2,
              linestyle="", color=BLACK, label="geometric mean", zorder=4)  # fmt: skip
    axes.axvline(1, color=BLACK, linewidth=1)
    axes.set_yticks(range(len(names)), [f"{name} ({len(groups[name])})" for name in names])
    axes.set_ylim(-0.7, len(names) - 0.3)
    _speedup_axis(axes.xaxis, axes.set_xscale)
    axes.set_xlabel("speed-up over the best cuSPARSE routine, before fallback, warm")
    axes.legend(loc="lower right", fontsize=9)
    axes.set_title(f"{suite.title}, {suite.device['name']}: speed-up by matrix class (number of matrices)")
    return figure


def roofline(suite: Suite) -> Any:
    """Achieved bytes a second over the nonzeros, beside the measured copy bandwidth and the floor of time."""
    figure, axes = _figure(9, 4.6)
    known = [(row, row.kernel) for row in suite.rows if row.kernel]
    for caption, marker, colour, chosen in (
        ("stencil, FEM, banded", "o", BLUE, [pair for pair in known if is_regular(pair[0])]),
        ("all others", "^", ORANGE, [pair for pair in known if not is_regular(pair[0])]),
    ):
        warm = [(row.nnz, row.gbs(kernel)) for row, kernel in chosen]
        cold = [(row.nnz, row.gbs(kernel, "cold")) for row, kernel in chosen]
        _dots(axes, warm, marker, colour, f"{caption}, warm")
        _dots(axes, cold, marker, colour, f"{caption}, cold L2", hollow=True)
    axes.axhline(suite.copy_gbs, color=BLACK, linewidth=1.2, label=f"copy bandwidth, {suite.copy_gbs:,.0f} GB/s")
    _floor_of_time(axes, known)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nonzeros")
    axes.set_ylabel("format and vector bytes over time, GB/s")
    axes.legend(loc="lower right", fontsize=9)
    axes.set_title(f"{suite.title}, {suite.device['name']}: achieved bytes a second")
    return figure


def break_even(suite: Suite) -> Any:
    """Total time over the number of products for a matrix of each class; the share of matrices that are repaid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.6), layout="constrained")
    panels = list(figure.subplots(2, 2).flat)
    shown = [(nnz, _typical(suite, nnz)) for nnz in NNZ_CLASSES]
    for axes, (nnz, row) in zip(panels, shown, strict=False):
        if row is None:
            axes.set_axis_off()
        else:
            _total_times(axes, row, nnz)
    _repaid(panels[3], suite)
    figure.suptitle(f"{suite.title}, {suite.device['name']}: when tuning and conversion are repaid")
    return figure


def _total_times(axes: Any, row: Row, nnz: NnzClass) -> None:
    assert row.kernel and row.search
    counts = [10 ** (step / 4) for step in range(int(4 * math.log10(MAX_PRODUCTS)) + 1)]
    ours_s, ours_us = row.search.tuning_s + row.kernel.conversion_ms / 1e3, row.kernel.time.warm_us
    axes.plot(counts, [ours_s + ours_us * count / 1e6 for count in counts], "-", color=BLUE, linewidth=1.8,
              label=f"ours, {row.kernel.family}: {ours_us:.2f} us")  # fmt: skip
    for name, line, colour, routine, repaid in (
        (row.best.name, "--", ORANGE, row.best, row.kernel.products_against_best),
        ("CSR default", ":", GREEN, row.default, row.kernel.products_against_default),
    ):
        us, start_s = routine.time.warm_us, (routine.preparation_ms or 0.0) / 1e3
        totals = [start_s + us * count / 1e6 for count in counts]
        when = "never repaid" if repaid is None else f"repaid after {repaid:.1e}"
        axes.plot(counts, totals, line, color=colour, linewidth=1.8, label=f"{name}: {us:.2f} us, {when}")
        if repaid is not None and 1 <= repaid <= MAX_PRODUCTS:
            axes.plot(repaid, ours_s + ours_us * repaid / 1e6, marker="o", markersize=6, color=colour, zorder=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("products")
    axes.set_ylabel("total time, s")
    axes.set_ylim(top=LEGEND_ROOM * max(ours_us, row.default.time.warm_us) * MAX_PRODUCTS / 1e6)
    axes.set_title(f"{row.name} (median of nnz {nnz.name}: {row.nnz:,})", fontsize=9)
    axes.legend(fontsize=8, loc="upper left")


def _repaid(axes: Any, suite: Suite) -> None:
    for caption, line, colour, counts in (
        ("best routine", "-", ORANGE, [row.kernel.products_against_best for row in _tuned(suite)]),
        ("CSR default", "--", GREEN, [row.kernel.products_against_default for row in _tuned(suite)]),
    ):
        ordered = sorted(max(1, count) for count in counts if count is not None)
        steps = [100 * (place + 1) / len(counts) for place in range(len(ordered))]
        middle = median(math.inf if count is None else count for count in counts)
        label = f"{caption}, median {middle:.1e}" if math.isfinite(middle) else f"{caption}, median: never"
        axes.step([1, *ordered, MAX_PRODUCTS * 100], [0, *steps, steps[-1] if steps else 0], line, where="post",
                  color=colour, linewidth=1.8, label=label)  # fmt: skip
    axes.axhline(50, color=GREY, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(1, MAX_PRODUCTS * 100)
    axes.set_ylim(0, 102)
    axes.set_xlabel("products")
    axes.set_ylabel("share of matrices repaid, %")
    axes.set_title(f"all {len(_tuned(suite))} matrices", fontsize=9)
    axes.legend(fontsize=8, loc="upper left")


def _tuned(suite: Suite) -> list["_Tuned"]:
    return [_Tuned(row, row.kernel) for row in suite.rows if row.kernel and row.search]


@dataclass(frozen=True)
class _Tuned:
    row: Row
    kernel: Kernel


def _typical(suite: Suite, nnz: NnzClass) -> Row | None:
    """The matrix in the middle of a class, by the products that repay it against the best routine."""
    rows = [entry.row for entry in _tuned(suite) if nnz.holds(entry.row)]

    def products(row: Row) -> tuple[float, str]:
        repaid = row.kernel.products_against_best if row.kernel else None
        return (math.inf if repaid is None else repaid, row.name)

    return sorted(rows, key=products)[len(rows) // 2] if rows else None


def _floor_of_time(axes: Any, known: Sequence[tuple[Row, Kernel]]) -> None:
    """What the suite's fastest kernel would give at the median bytes a nonzero: small matrices are latency."""
    fastest_us = min(kernel.time.warm_us for _, kernel in known)
    bytes_a_nonzero = median((kernel.format_bytes + row.vector_bytes) / row.nnz for row, kernel in known)
    ends = [min(row.nnz for row, _ in known), max(row.nnz for row, _ in known)]
    copied = axes.get_lines()[-1].get_ydata()[0]
    ends[1] = min(ends[1], copied * 1e3 * fastest_us / bytes_a_nonzero * 2)
    axes.plot(
        ends, [bytes_a_nonzero * nnz / fastest_us / 1e3 for nnz in ends], "--", color=BLACK, linewidth=1,
        label=f"floor of time: {fastest_us:.2f} us at {bytes_a_nonzero:.1f} bytes a nonzero",
    )  # fmt: skip


def _dots(
    axes: Any, points: Sequence[tuple[float, float]], marker: str, colour: str, label: str, *, hollow: bool = False
) -> None:
    if points:
        xs, ys = zip(*points, strict=True)
        face = "none" if hollow else colour
        axes.plot(xs, ys, marker, color=colour, markerfacecolor=face, markersize=5.5, alpha=0.9, label=label, zorder=3)


def _speedup_axis(axis: Any, set_scale: Callable[[str], None]) -> None:
    """Doublings at equal distances, written as 0.5x, 1x, 1.5x, ..."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    set_scale("log")
    axis.set_major_locator(FixedLocator([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """Inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


@cache
def _own_text() -> bytes:
    return Path(__file__).read_bytes()


PLOT_KINDS = (
    Plot("speedup", "Speed-up by matrix", speedups),
    Plot("classes", "Speed-up by matrix class", speedups_by_class),
    Plot("roofline", "Achieved bytes a second", roofline),
    Plot("break-even", "Break-even", break_even, applies=lambda suite: bool(_tuned(suite))),
)
