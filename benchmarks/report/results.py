"""Result files as data: what was measured of a suite, and the figures that reports and plots are made of.

Estimated times (of the interpreter) are not read: `read_suites` gives what was measured on a GPU.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from benchmarks.matrices.structure import Structure
from benchmarks.origin import RESULTS, ROOT

LOSS = 0.98
"""Below this share of the best baseline's speed a matrix is lost."""

Cache = Literal["warm", "cold"]
Against = Literal["best", "default"]
Json = dict[str, Any]
SHIPPED = "sparsesmith-28m"
"""Name of the policy that ships; of policies that learned on from it, and of weights before, others are written down."""
Read = TypeVar("Read")


@dataclass(frozen=True)
class NnzClass:
    """Matrices by their number of nonzeros."""

    name: str
    low: float
    high: float

    def holds(self, row: "Row") -> bool:
        return self.low <= row.nnz < self.high


NNZ_CLASSES = (
    NnzClass("< 1e5", 0, 1e5),
    NnzClass("1e5-1e6", 1e5, 1e6),
    NnzClass(">= 1e6", 1e6, math.inf),
)


@dataclass(frozen=True)
class Measured:
    """Microseconds."""

    warm_us: float
    low_us: float
    high_us: float
    cold_us: float
    stable: bool
    placements_us: tuple[float, ...] = ()
    """At other addresses each time; empty: at one placement."""

    def us(self, cache: Cache) -> float:
        return self.warm_us if cache == "warm" else self.cold_us


@dataclass(frozen=True)
class Routine:
    """A routine of the library."""

    name: str
    time: Measured
    preparation_ms: float | None
    """None: an early result file, which did not keep it."""


@dataclass(frozen=True)
class Kernel:
    """The fastest program of a field."""

    family: str
    parameters: dict[str, int | str]
    time: Measured
    format_bytes: int
    conversion_ms: float
    launches: int
    products_against_best: int | None
    """To repay tuning and conversion; None: never."""
    products_against_default: int | None


@dataclass(frozen=True)
class Search:
    """What tuning took."""

    candidates: int
    """Graded."""
    prepare_s: float
    search_s: float
    device_s: float
    """Of it, seconds in which the device's process was at work, the library's routines included."""
    baselines_s: float
    as_good_at_s: float | None = field(default=None, repr=False)
    """Of device_s, until a program within 1 % of the end's time had been graded; None: an early result file, or none
    passed."""

    @property
    def tuning_s(self) -> float:
        """What a user waits for."""
        return self.prepare_s + self.search_s


@dataclass(frozen=True)
class Row:
    """One matrix."""

    name: str
    matrix_class: str
    split: str
    num_rows: int
    num_cols: int
    nnz: int
    structure: Structure
    csr_bytes: int
    vector_bytes: int
    default: Routine
    best: Routine
    kernel: Kernel | None
    outcomes: dict[str, int]
    without_overlap: Measured | None
    """The kernel started only after the launch before it has ended; None where it waits for that anyway."""
    policy_kernel: Kernel | None
    policy_outcomes: dict[str, int]
    search: Search | None
    """None: an early result file."""
    routines: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    """Every routine that was timed; no plot is made from them."""
    dense_us: float | None = field(default=None, repr=False)
    """Of the dense product by cuBLAS, warm; None: not timed."""
    dense_cold_us: float | None = field(default=None, repr=False)
    sputnik_us: float | None = field(default=None, repr=False)
    """Of Sputnik's product, warm; None: not timed."""
    sputnik_cold_us: float | None = field(default=None, repr=False)
    sputnik_failed: str | None = field(default=None, repr=False)
    """Why it is not known what Sputnik takes, where it was asked for."""

    def speedup(self, against: Against = "best", cache: Cache = "warm", *, fallback: bool = True) -> float:
        """Of our kernel; with fallback the best baseline's own time where ours is not faster."""
        routine = self.best if against == "best" else self.default
        ours = self.kernel.time.us(cache) if self.kernel else math.inf
        if fallback:
            ours = min(ours, self.best.time.us(cache))
        return routine.time.us(cache) / ours

    def speedup_over(self, routine: str, cache: Cache = "warm") -> float | None:
        """Over one routine alone, with fallback as ever; None where it was not timed."""
        if routine not in self.routines:
            return None
        ours = min(self.kernel.time.us(cache) if self.kernel else math.inf, self.best.time.us(cache))
        return self.routines[routine].us(cache) / ours

    def speedup_without_overlap(self, against: Against = "best") -> float:
        """Warm, with fallback, of a kernel that does not start before its predecessor has ended."""
        if self.without_overlap is None:
            return self.speedup(against)
        routine = self.best if against == "best" else self.default
        return routine.time.warm_us / min(self.without_overlap.warm_us, self.best.time.warm_us)

    def gbs(self, kernel: Kernel, cache: Cache = "warm", *, vectors: bool = True) -> float:
        """Bytes of the format, and of the vectors once each, over the time; 1e9 bytes a second."""
        moved = kernel.format_bytes + (self.vector_bytes if vectors else 0)
        return moved / kernel.time.us(cache) / 1e3

    @property
    def is_lost(self) -> bool:
        return self.speedup(fallback=False) < LOSS


@dataclass(frozen=True)
class Suite:
    """One workload kind on one device."""

    operation: str
    element_type: str
    num_dense_cols: int
    candidates: int
    device: Json
    commit: str
    date: str
    command: str
    missing: tuple[str, ...]
    failed: dict[str, str]
    rows: tuple[Row, ...]
    sputnik: str = field(default="", repr=False)
    """Digest of the sources of Sputnik's library that was timed beside; empty: none was."""

    @property
    def title(self) -> str:
        columns = f", {self.num_dense_cols} columns" if self.operation == "spmm" else ""
        return f"{self.operation} {self.element_type}{columns}"

    @property
    def slug(self) -> str:
        columns = f"-{self.num_dense_cols}" if self.operation == "spmm" else ""
        return f"{self.operation}{columns}-{self.element_type}"

    @property
    def copy_gbs(self) -> float:
        """Measured copy bandwidth of the device, read and written bytes."""
        return float(self.device["copy_bandwidth_gbs"])

    @property
    def unseen(self) -> tuple[Row, ...]:
        """Validation and generated matrices: no policy, family or cost model was chosen on them."""
        return tuple(row for row in self.rows if row.split != "train")


def read_results(folder: Path = RESULTS) -> list[Json]:
    """Every result file, in order of its path, with that below the folder as `file`."""
    return [
        {**_with_command_of_today(json.loads(path.read_text(encoding="utf-8"))), "file": str(path.relative_to(folder))}
        for path in sorted(folder.glob("*/*.json"))
    ]


def command_of_today(command: str) -> str:
    """A result's command, its module by the room where it lies now: results outlive moves."""
    rooms = {path.stem: path.parent.name for path in (ROOT / "benchmarks").glob("*/*.py")}
    return re.sub(
        r"\bbenchmarks\.(\w+)(?![\w.])",
        lambda found: f"benchmarks.{rooms[found[1]]}.{found[1]}" if found[1] in rooms else found[0],
        command,
    )


def _with_command_of_today(result: Json) -> Json:
    return {**result, "command": command_of_today(result["command"])} if "command" in result else result


def read_suites(results: Iterable[Json]) -> list[Suite]:
    """Suites measured on a GPU: spmv before spmm, few columns before many."""
    return _suites_of_kind("suite", results)


def read_held_out(results: Iterable[Json]) -> list[Suite]:
    """The same of the held-out matrices: validation matrices outside the suites that development looked at."""
    return _suites_of_kind("held_out", results)


def read_layers(results: Iterable[Json]) -> list[Suite]:
    """The same of pruned layers made here, a suite of its own."""
    return _suites_of_kind("layers", results)


def read_dlmc(results: Iterable[Json]) -> list[Suite]:
    """The same of DLMC's pruned layers."""
    return _suites_of_kind("dlmc", results)


def read_samples(results: Iterable[Json]) -> list[Suite]:
    """The same of the shipped policy's samples, beside the tuner's kernels on the same matrices."""
    return _suites_of_kind("samples", (each for each in results if policy_of(each) == SHIPPED))


def how_sampled(line: Mapping[str, Any]) -> Json:
    """Of a line that `sample_policy` wrote: whose samples they are, and what is unusual about them."""
    names = ("policy", "permuted", "conditioning", "temperature", "min_p", "split")
    return {name: line[name] for name in names if name in line}


def policy_of(result: Json) -> str:
    """The policy that a result is of; early files did not say."""
    name: str = result.get("policy", SHIPPED)
    return name


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive values; NaN of none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def pass_at(k: int, answers: int, passed: int) -> float:
    """The chance that one of k answers passes, of so many of which so many did (Chen et al. 2021, section 2.1)."""
    return 1 - math.comb(answers - passed, k) / math.comb(answers, k)


def median(values: Iterable[float]) -> float:
    """NaN of none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return math.nan
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def class_means(rows: Iterable[Row], against: Against, cache: Cache) -> list[float]:
    """Geometric mean of each nnz class with fallback; NaN where it has no matrix."""
    known = list(rows)
    return [geometric_mean(row.speedup(against, cache) for row in known if nnz.holds(row)) for nnz in NNZ_CLASSES]


def class_means_over(rows: Iterable[Row], routine: str, cache: Cache) -> list[float]:
    """As class_means, over one routine alone, of the matrices on which it was timed."""
    known = [(row, row.speedup_over(routine, cache)) for row in rows]
    return [
        geometric_mean(speedup for row, speedup in known if speedup is not None and nnz.holds(row))
        for nnz in NNZ_CLASSES
    ]


def class_means_without_overlap(rows: Iterable[Row], against: Against) -> list[float]:
    """As class_means, warm, of kernels that start after the launch before them has ended."""
    known = list(rows)
    return [
        geometric_mean(row.speedup_without_overlap(against) for row in known if nnz.holds(row)) for nnz in NNZ_CLASSES
    ]


def mean_of_classes(means: Iterable[float]) -> float:
    """Geometric mean of the classes that have a mean, so that no class can carry the number."""
    return geometric_mean(mean for mean in means if not math.isnan(mean))


def _suites_of_kind(kind: str, results: Iterable[Json]) -> list[Suite]:
    measured = [_suite(result) for result in results if result.get("kind") == kind and _is_measured(result)]
    return sorted(measured, key=lambda s: (s.operation != "spmv", s.num_dense_cols, s.element_type))


def _is_measured(result: Json) -> bool:
    return bool(result["device"]["kind"] == "cuda")


def _suite(result: Json) -> Suite:
    return Suite(
        operation=result["operation"],
        element_type=result["element_type"],
        num_dense_cols=result["num_dense_cols"],
        candidates=result["candidates"],
        device=result["device"],
        commit=result["commit"],
        date=result["date"],
        command=result["command"],
        missing=tuple(result["missing"]),
        failed={row["name"]: row["failed"] for row in result["rows"] if "failed" in row},
        rows=tuple(_row(row) for row in result["rows"] if "failed" not in row),
        sputnik=result.get("sputnik", ""),
    )


def _row(row: Json) -> Row:
    return Row(
        name=row["name"],
        matrix_class=row["class"],
        split=row["split"],
        num_rows=row["num_rows"],
        num_cols=row["num_cols"],
        nnz=row["nnz"],
        structure=Structure(**row["structure"]),
        csr_bytes=row["csr_bytes"],
        vector_bytes=row["vector_bytes"],
        default=_routine("default", row["default"]),
        best=_routine(row["best_baseline"]["routine"], row["best_baseline"]),
        kernel=_optional(_kernel, row["families"]["best"]),
        outcomes=row["families"]["outcomes"],
        without_overlap=_optional(_measured, row.get("without_overlap")),
        policy_kernel=_optional(_kernel, row["policy"]["best"]),
        policy_outcomes=row["policy"]["outcomes"],
        search=_optional(_search, row["search"]),
        routines={name: _measured(time) for name, time in row["routines"].items()},
        dense_us=row["dense"]["us"] if "dense" in row else None,
        dense_cold_us=row["dense"]["cold_us"] if "dense" in row else None,
        sputnik_us=row["sputnik"]["us"] if "sputnik" in row else None,
        sputnik_cold_us=row["sputnik"]["cold_us"] if "sputnik" in row else None,
        sputnik_failed=row.get("sputnik_failed"),
    )


def _optional(read: Callable[[Json], Read], value: Json | None) -> Read | None:
    return None if value is None else read(value)


def _measured(value: Json) -> Measured:
    return Measured(
        value["us"],
        value["low_us"],
        value["high_us"],
        value["cold_us"],
        value["stable"],
        tuple(value.get("placements_us", ())),
    )


def _routine(name: str, value: Json) -> Routine:
    return Routine(name, _measured(value), value["preparation_ms"])


def _kernel(value: Json) -> Kernel:
    return Kernel(
        family=value.get("family", ""),
        parameters=value.get("parameters", {}),
        time=_measured(value),
        format_bytes=value["format_bytes"],
        conversion_ms=value["conversion_ms"],
        launches=value["launches"],
        products_against_best=value["products_against_best"],
        products_against_default=value["products_against_default"],
    )


def _search(value: Json) -> Search:
    stages = value["stages_s"]
    return Search(
        candidates=value["candidates"],
        prepare_s=value["prepare_s"],
        search_s=value["search_s"],
        device_s=value["device_s"],
        baselines_s=stages.get("baselines", 0.0),
        as_good_at_s=value.get("as_good_at_s"),
    )
