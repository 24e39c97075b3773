"""What the project aims at (issue 3, "Kernels that win"), side by side with what was measured."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.report.apart import apart_cells, apart_heads, timed_apart
from benchmarks.report.plots import is_regular
from benchmarks.report.results import (
    NNZ_CLASSES,
    Cache,
    Json,
    Row,
    Suite,
    class_means,
    class_means_without_overlap,
    mean_of_classes,
    median,
)


@dataclass(frozen=True)
class SpeedTarget:
    """Geometric means with fallback, warm: over the best routine, and over CSR default where the issue names it."""

    operation: str
    element_type: str
    num_dense_cols: int
    by_class: tuple[tuple[float, float | None], ...]
    """In the order of NNZ_CLASSES; empty where only the mean of classes is aimed at."""
    mean: float


SPEED_TARGETS = (
    SpeedTarget("spmv", "float32", 1, ((2.0, 2.6), (1.5, 1.8), (1.4, 1.5)), 1.6),
    SpeedTarget("spmv", "float64", 1, ((1.9, None), (1.35, None), (1.25, None)), 1.45),
    SpeedTarget("spmm", "float32", 8, ((2.0, None), (1.8, None), (1.7, None)), 1.8),
    SpeedTarget("spmm", "float32", 32, (), 1.6),
    SpeedTarget("spmm", "float32", 128, (), 1.2),
)
MAX_LOST_SHARE = 0.05
MIN_COPY_SHARE = 0.85
BANDWIDTH_MIN_NNZ = 1e7
MIN_GRADED_PER_S = 40
MAX_TUNING_S = 3.0
MAX_AS_GOOD_S = 0.5
"""Issue 12: median over all matrices."""
TUNING_MAX_NNZ = 1e6
MAX_REGRET = 0.02
SEARCH_SHARE = "0.05"


def speed_table(suites: Sequence[Suite], held_out: Sequence[Suite] = ()) -> list[str]:
    """Targets and measured means, warm and cold, of all matrices, of those that nothing was chosen on, and of those that
    nobody had looked at."""
    unknown = defaultdict[str, list[Suite]](list)
    for suite in held_out:
        unknown[suite.slug].append(suite)
    apart = timed_apart(row for suite in [*suites, *held_out] for row in suite.rows)
    no_cells = " - |" * len(apart)
    lines = [
        f"| workload | matrices | cache | < 1e5 nnz | 1e5-1e6 | >= 1e6 | mean of classes |{apart_heads(apart)}",
        f"|---|---|---|---|---|---|---|{'---|' * len(apart)}",
    ]
    for suite in suites:
        target = target_of(suite)
        if target is not None:
            lines.append(f"| {suite.title} | *target* | warm | {' | '.join(_target_cells(target))} |{no_cells}")
        groups = [("all", suite.rows), ("validation + generated", suite.unseen)]
        groups += [(_held_out_name(each, suite), each.rows) for each in unknown[suite.slug]]
        for name, rows in groups:
            for cache in ("warm", "cold"):
                cells = _mean_cells(rows, cache, target if cache == "warm" else None)
                cells += apart_cells(rows, apart, cache)
                lines.append(f"| | {name} | {cache} | {' | '.join(cells)} |")
        if any(row.without_overlap for row in suite.rows):
            lines.append(
                f"| | all, launches not overlapping | warm | {' | '.join(_cells_without_overlap(suite.rows))} |"
                f"{no_cells}"
            )
    return [*lines, "", "Over the best cuSPARSE routine (in brackets: over CSR default), geometric means with fallback "
            "counted as 1.0, number of matrices. Bold: the target is met. Held out: validation matrices outside the "
            "core suite, measured for the first time. Over a routine alone: by class, then their mean. Launches not overlapping: the same "
            "programs with dependency=full, each product begun after the one before has ended."]  # fmt: skip


def _held_out_name(held_out: Suite, suite: Suite) -> str:
    """With its device and its library where those are not the suite's."""
    ours, theirs = _measured_with(held_out), _measured_with(suite)
    return ", ".join(["held out", *(each for each, other in zip(ours, theirs, strict=True) if each != other)])


def _measured_with(suite: Suite) -> tuple[str, str]:
    return str(suite.device["name"]), f"cuSPARSE {suite.device['versions'].get('cusparse', '?')}"


def other_table(suites: Sequence[Suite], results: Iterable[Json] = (), held_out: Sequence[Suite] = ()) -> list[str]:
    """The targets that are no speed-ups; those on repeated runs and on the search where their result files are."""
    lines = ["| what | workload | target | measured |", "|---|---|---|---|"]
    for suite in suites:
        lines += [f"| {what} | {suite.title} | {aim} | {measured} |" for what, aim, measured in _others(suite)]
    for suite in held_out:
        what, aim, measured = _lost(suite)
        with_what = ", ".join(_measured_with(suite))
        lines.append(f"| {what} | {suite.title}, held out, {with_what} | {aim} | {measured} |")
    for result in results:
        match result.get("kind"):
            case "repeatability":
                lines += map(_repeatability_line, result["suites"])
            case "throughput":
                lines += map(_throughput_line, result["rows"])
            case "tuner":
                lines += _tuner_lines(result, "the best of a sample")
            case "tuner_grids":
                lines += _tuner_lines(result, "the whole grid's best")
    return lines


def _repeatability_line(suite: Json) -> str:
    measured = (
        f"means within {abs(suite['time_ratio'] - 1):.1%} (speed-up {abs(suite['speedup_ratio'] - 1):.1%}), "
        f"{suite['share_within_tolerance']:.0%} of {suite['matrices']} matrices within 5 %"
    )
    aim = "means within 2 %, > 95 % of the matrices within 5 %"
    return f"| two full runs agree | {suite['suite']} | {aim} | {marked(measured, suite['agrees'])} |"


def _throughput_line(entry: Json) -> str:
    measured = marked(f"{entry['a_second']:g}", entry["a_second"] >= MIN_GRADED_PER_S)
    what = f"candidates graded a second, end to end, jobs of {entry['candidates_a_job']}"
    return f"| {what} | {entry['workload']} | >= {MIN_GRADED_PER_S} | {measured} |"


def _tuner_lines(result: Json, best: str) -> list[str]:
    return [_tuner_line(name, entry, best) for name, entry in result["kinds"].items() if name != "all"]


def _tuner_line(name: str, entry: Json, best: str) -> str:
    regret = entry["regret_at_share"][SEARCH_SHARE]["mean"]
    measured = marked(f"{regret:.1%}", regret <= MAX_REGRET) + f" on {entry['workloads']} matrices"
    what = f"search: behind {best} at {float(SEARCH_SHARE):.0%} of its cost"
    return f"| {what} | {name} | <= {MAX_REGRET:.0%} | {measured} |"


def bandwidth_rows(suite: Suite) -> list[Row]:
    """Stencils, FEM and banded matrices of 1e7 nonzeros and more."""
    return [row for row in suite.rows if is_regular(row) and row.nnz >= BANDWIDTH_MIN_NNZ and row.kernel]


def target_of(suite: Suite) -> SpeedTarget | None:
    key = (suite.operation, suite.element_type, suite.num_dense_cols)
    return next((t for t in SPEED_TARGETS if (t.operation, t.element_type, t.num_dense_cols) == key), None)


def lost_share(rows: Sequence[Row]) -> float:
    """Share of the matrices that are lost before fallback."""
    return sum(row.is_lost for row in rows) / len(rows) if rows else math.nan


def graded_per_s(rows: Sequence[Row]) -> float:
    """Candidates over the wall time of the searches: opening, baselines, formats, inputs and finals included."""
    searches = [row.search for row in rows if row.search]
    seconds = sum(search.search_s for search in searches)
    return sum(search.candidates for search in searches) / seconds if seconds else math.nan


def tuning_seconds(suite: Suite, of: Callable[[Row], float]) -> float:
    """Median over matrices of up to 1e6 nonzeros."""
    return median(of(row) for row in suite.rows if row.search and row.nnz <= TUNING_MAX_NNZ)


def device_s(row: Row) -> float:
    assert row.search
    return row.search.device_s


def device_s_without_baselines(row: Row) -> float:
    assert row.search
    return row.search.device_s - row.search.baselines_s


def wall_s(row: Row) -> float:
    assert row.search
    return row.search.tuning_s


def as_good_seconds(rows: Iterable[Row]) -> list[tuple[float, float]]:
    """Device seconds of each search until it had a program within 1 % of its end: in all, and without the library's
    routines."""
    searches = [row.search for row in rows if row.search]
    return [
        (search.as_good_at_s, search.as_good_at_s - search.baselines_s)
        for search in searches
        if search.as_good_at_s is not None
    ]


def _lost(suite: Suite) -> tuple[str, str, str]:
    lost = lost_share(suite.rows)
    measured = marked(f"{lost:.1%}", lost < MAX_LOST_SHARE)
    return "lost before fallback (below 0.98x)", f"< {MAX_LOST_SHARE:.0%}", measured


def _others(suite: Suite) -> Iterable[tuple[str, str, str]]:
    yield _lost(suite)
    regular = bandwidth_rows(suite)
    if suite.operation == "spmv" and regular:
        reached = sum(
            row.gbs(row.kernel, vectors=False) >= MIN_COPY_SHARE * suite.copy_gbs for row in regular if row.kernel
        )
        yield (
            "stencil, FEM, banded of nnz >= 1e7: format bytes at copy bandwidth",
            f">= {MIN_COPY_SHARE:.0%}",
            marked(f"{reached} of {len(regular)} matrices", reached == len(regular)),
        )
    rate = graded_per_s([row for row in suite.rows if row.nnz <= TUNING_MAX_NNZ])
    if not math.isnan(rate):
        yield (
            "candidates graded a second, whole searches, nnz <= 1e6",
            f">= {MIN_GRADED_PER_S}",
            marked(f"{rate:.1f}", rate >= MIN_GRADED_PER_S) + f" (all matrices: {graded_per_s(suite.rows):.1f})",
        )
        spent = tuning_seconds(suite, device_s)
        yield (
            "GPU seconds to a tuned kernel, nnz <= 1e6, median",
            f"<= {MAX_TUNING_S:g} s",
            marked(f"{spent:.2f} s", spent <= MAX_TUNING_S)
            + f" ({tuning_seconds(suite, device_s_without_baselines):.2f} s without the library's routines; "
            f"wall {tuning_seconds(suite, wall_s):.2f} s)",
        )
    if as_good := as_good_seconds(suite.rows):
        within_s, own_s = (median(seconds) for seconds in zip(*as_good, strict=True))
        yield (
            "GPU seconds of a search to within 1 % of its end, median",
            f"<= {MAX_AS_GOOD_S:g} s",
            marked(f"{within_s:.2f} s", within_s <= MAX_AS_GOOD_S)
            + f" on {len(as_good)} matrices ({own_s:.2f} s without the library's routines)",
        )


def _target_cells(target: SpeedTarget) -> list[str]:
    cells = [f"{best:g}x" + (f" ({default:g}x)" if default else "") for best, default in target.by_class]
    return [*(cells or ["-"] * len(NNZ_CLASSES)), f"{target.mean:g}x"]


def _mean_cells(rows: Sequence[Row], cache: Cache, target: SpeedTarget | None) -> list[str]:
    best, default = class_means(rows, "best", cache), class_means(rows, "default", cache)
    counts = [sum(nnz.holds(row) for row in rows) for nnz in NNZ_CLASSES]
    by_class = target.by_class if target and target.by_class else ((math.inf, None),) * len(NNZ_CLASSES)
    cells = [
        "-" if not count else marked(f"{b:.2f}x ({d:.2f}x)", b >= aim and d >= (default_aim or 0)) + f", {count}"
        for b, d, count, (aim, default_aim) in zip(best, default, counts, by_class, strict=True)
    ]
    mean = mean_of_classes(best)
    met = target is not None and mean >= target.mean
    return [*cells, marked(f"{mean:.2f}x ({mean_of_classes(default):.2f}x)", met)]


def _cells_without_overlap(rows: Sequence[Row]) -> list[str]:
    best, default = (class_means_without_overlap(rows, against) for against in ("best", "default"))
    cells = ["-" if math.isnan(b) else f"{b:.2f}x ({d:.2f}x)" for b, d in zip(best, default, strict=True)]
    return [*cells, f"{mean_of_classes(best):.2f}x ({mean_of_classes(default):.2f}x)"]


def marked(text: str, is_met: bool) -> str:
    return f"**{text}**" if is_met else text
