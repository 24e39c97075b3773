"""Of issue 12 ("Against today's library"): its lines that are missed, each with what the result files say of the cause."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from benchmarks.matrices.irregular import IRREGULAR
from benchmarks.report.results import (
    Json,
    Row,
    Suite,
    class_means,
    mean_of_classes,
    read_suites,
)
from benchmarks.report.targets import TUNING_MAX_NNZ, graded_per_s

SPMV_TARGETS: Mapping[str, tuple[tuple[float, float, float], float]] = {
    "float32": ((2.5, 2.2, 1.8), 2.15),
    "float64": ((2.5, 2.0, 1.55), 1.97),
}
"""Over the best routine of 12.9, by nonzeros as in NNZ_CLASSES, and their mean."""
SPMM_TARGETS: Mapping[int, float] = {8: 3.1, 32: 2.5, 128: 2.0}
"""By dense columns: the mean of classes."""
MIN_PER_S: Mapping[str, float] = {"spmv": 60, "spmm": 50}
MAX_BUILD_MS, BUILD_NNZ = 10.0, 1e7
LARGEST_STAGES = 3


def missed_section(results: Sequence[Json]) -> list[str]:
    """Empty where nothing is missed, or nothing was measured."""
    suites = read_suites(results)
    files = _of_kind(results, "suite")
    raw = {(each["operation"], each["element_type"], each["num_dense_cols"]): each for each in files}
    lines = [
        *(line for suite in suites if suite.operation == "spmv" for line in _spmv(suite)),
        *(line for suite in suites if suite.operation == "spmm" for line in _spmm(suite)),
        *(
            line
            for suite in suites
            for line in _rate(suite, raw[suite.operation, suite.element_type, suite.num_dense_cols])
        ),
        *(line for result in _latest(_of_kind(results, "instant")) for line in _instant(result)),
        *(line for result in _of_kind(results, "device_builders") for line in _builders(result)),
    ]
    if not lines:
        return []
    intro = "Lines of issue 12 whose target is not met, and what the same files say of the cause."
    return ["## What is missed and why", "", intro, "", *lines, ""]


def _of_kind(results: Iterable[Json], kind: str) -> list[Json]:
    """Measured on a GPU; results of formats alone name the device in a word."""
    return [each for each in results if each.get("kind") == kind and _is_of_a_gpu(each["device"])]


def _latest(results: Sequence[Json]) -> list[Json]:
    return sorted(results, key=lambda each: str(each["date"]))[-1:]


def _is_of_a_gpu(device: Json | str) -> bool:
    return isinstance(device, str) or device["kind"] == "cuda"


def _spmv(suite: Suite) -> Iterator[str]:
    """With and without the kinds that were added because they are hard."""
    aims, mean_aim = SPMV_TARGETS[suite.element_type]
    means = class_means(suite.unseen, "best", "warm")
    if all(mean >= aim for mean, aim in zip(means, aims, strict=True)) and mean_of_classes(means) >= mean_aim:
        return
    usual = [row for row in suite.unseen if row.name not in IRREGULAR]
    without = class_means(usual, "best", "warm")
    aimed = f"{_cells(aims)} (mean {mean_aim:g})"
    yield (
        f"- **{suite.title}**, validation and generated: {_cells(means)} (mean {mean_of_classes(means):.2f}), aim {aimed}. "
        f"Without the {len(suite.unseen) - len(usual)} matrices of irregular kinds {_cells(without)} (mean "
        f"{mean_of_classes(without):.2f}). {_irregular(suite)}"
    )


def _irregular(suite: Suite) -> str:
    """Each kind's mean, the worst first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in suite.unseen:
        if row.name in IRREGULAR:
            groups[row.matrix_class].append(row)
    means = sorted((mean_of_classes(class_means(rows, "best", "warm")), name) for name, rows in groups.items())
    return f"They are at {', '.join(f'{mean:.2f}x ({name})' for mean, name in means)}." if means else ""


def _cells(means: Iterable[float]) -> str:
    return " / ".join("-" if math.isnan(mean) else f"{mean:.2f}" for mean in means)


def _spmm(suite: Suite) -> Iterator[str]:
    """Which routine is the one to beat."""
    aim, means = SPMM_TARGETS[suite.num_dense_cols], class_means(suite.unseen, "best", "warm")
    if mean_of_classes(means) >= aim:
        return
    (name, count), *_ = Counter(row.best.name for row in suite.rows).most_common(1)
    yield (
        f"- **{suite.title}**, validation and generated: {_cells(means)} by nonzeros, mean {mean_of_classes(means):.2f}, aim {aim:g}. "
        f"Of cuSPARSE {suite.device['versions']['cusparse']} `{name}` is the best routine on {count} of {len(suite.rows)} matrices."
    )


def _rate(suite: Suite, result: Json) -> Iterator[str]:
    """Where the wall time of a search goes: stages of the device's process, and the rest."""
    aim, rows = MIN_PER_S[suite.operation], [row for row in suite.rows if row.search and row.nnz <= TUNING_MAX_NNZ]
    rate = graded_per_s(rows)
    if not rows or rate >= aim:
        return
    names, stages = {row.name for row in rows}, Counter[str]()
    for row in result["rows"]:
        if row["name"] in names:
            stages.update(row["search"]["stages_s"])
    wall_s = sum(row.search.search_s for row in rows if row.search)
    shares = ", ".join(f"{name} {seconds / wall_s:.0%}" for name, seconds in stages.most_common(LARGEST_STAGES))
    yield (
        f"- **Candidates a second, {suite.title}**, nnz <= {TUNING_MAX_NNZ:.0e}, {result['cpu_cores']} cores: {rate:.0f}, aim {aim:g}. "
        f"Of the searches' wall time: {shares} (checks and timing are one Python process that feeds the device)."
    )


def _instant(result: Json) -> Iterator[str]:
    for entry in result["classes"]:
        if entry["target_ms"] and entry["first_ms"] > entry["target_ms"]:
            slowest = Counter(entry["first_stages_ms"]).most_common(2)
            shown = ", ".join(f"{name} {ms:.0f} ms" for name, ms in slowest)
            yield (
                f"- **A kernel at once, {entry['nnz']:.0e} nonzeros** ({result['date'][:10]}): {entry['first_ms']:.0f} ms, "
                f"aim {entry['target_ms']}; the longest stages: {shown}; {entry['again_ms']:.0f} ms where the text was compiled before."
            )


def _builders(result: Json) -> Iterator[str]:
    times: dict[str, list[float]] = defaultdict(list)
    for row in result["rows"]:
        if row["class_nnz"] == BUILD_NNZ and "device_ms" in row:
            times[row["format"]].append(row["device_ms"])
    late = {name: found for name, found in times.items() if max(found) > MAX_BUILD_MS}
    if late:
        shown = ", ".join(f"{name} {median(found):.1f} (to {max(found):.1f})" for name, found in sorted(late.items()))
        yield (
            f"- **Formats built on the device, {BUILD_NNZ:.0e} nonzeros**: aim {MAX_BUILD_MS:g} ms; {len(times) - len(late)} of "
            f"{len(times)} formats keep it on every pattern, these do not, ms in the median (at most): {shown}."
        )
