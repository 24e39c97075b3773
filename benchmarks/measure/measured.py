"""Records of sweeps (`benchmarks.tuning.sweep`) as measured prospects of grids."""

import csv
import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.matrices.training_pack import TRAINING_NNZ
from benchmarks.tuning.sweep import Plan
from sparsesmith.families import FAMILIES
from sparsesmith.families.catalogue import REORDERING
from sparsesmith.families.estimates.cost import Prospect
from sparsesmith.families.proposal import FamilyProspect, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pack import pack_index, read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.tuning.columns import columns_of
from sparsesmith.tuning.grid import FloatArray, Grid, grid_of
from sparsesmith_proto.words import ReorderOption

ADDED_LATER: Mapping[str, ParameterValue] = {"registers": "free", "dependency": "full"}
"""Parameters that older records do not name, and what their programs did."""

Record = Mapping[str, Any]
Key = tuple[str, frozenset[tuple[str, ParameterValue]]]


@dataclass(frozen=True)
class MatrixEntry:
    """A row of the development split."""

    name: str
    matrix_class: str
    split: str
    nnz: int


@dataclass(frozen=True, eq=False)
class Measured:
    """The prospects of one workload that were measured, each with its best time."""

    matrix: MatrixEntry
    plan: Plan
    grid: Grid
    """Only these prospects."""
    columns: Mapping[str, FloatArray]
    """Of the cost model, computed among all prospects of the workload; shape [measured]."""
    times_us: FloatArray
    """Shape [measured]."""
    grading_s: FloatArray
    """What each took of the evaluator; NaN where the records do not say. Shape [measured]."""
    num_offered: int
    """Prospects of the workload, measured or not; some of them come to the same program."""

    @property
    def workload(self) -> str:
        """`spmv float32`, `spmm 32 float32`."""
        columns = f" {self.plan.num_dense_cols}" if self.plan.operation == "spmm" else ""
        return f"{self.plan.operation}{columns} {self.plan.element_type}"


def matrix_entries() -> dict[str, MatrixEntry]:
    """The development split by name, and the large matrices made to train on."""
    with SPLIT_FILE.open(encoding="utf-8", newline="") as rows:
        entries = {
            row["name"]: MatrixEntry(row["name"], row["class"], row["split"], int(row["nnz"]))
            for row in csv.DictReader(rows)
        }
    made = {name: MatrixEntry(name, "made to train on", "train", nnz) for name, nnz in TRAINING_NNZ.items()}
    return entries | made


def read_measured(
    sweeps: Sequence[Path],
    packs: Sequence[Path],
    words: Mapping[str, int],
    split: str | None = None,
    least: int = 2,
    entries: Mapping[str, MatrixEntry] | None = None,
) -> list[Measured]:
    """Every workload with at least `least` measured prospects, pattern by pattern. Records of prospects that are no
    longer offered are left out. `split`: only matrices of this side. `entries`: those there are, by name; else
    `matrix_entries`."""
    entries = matrix_entries() if entries is None else entries
    pack_of = {name: pack for pack in packs for name in pack_index(pack)}
    by_pattern: dict[str, list[Record]] = defaultdict(list)
    for record in read_records(sweeps):
        entry = entries.get(record["pattern"])
        if entry is not None and entry.name in pack_of and split in (None, entry.split):
            by_pattern[entry.name].append({name: record[name] for name in record.keys() - {"program"}})
    work = [(pack_of[name], name, by_pattern[name]) for name in sorted(by_pattern)]
    found = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for (pack, name, _), joined in zip(work, pool.map(partial(_join, words), work, chunksize=4), strict=True):
            pattern = dict(read_pack(pack, [name]))[name]
            found += [_measured(entries[name], pattern, each) for each in joined if len(each.times) >= least]
    return found


@dataclass(frozen=True, eq=False)
class _Joined:
    """What travels between processes: families are named, patterns stay behind."""

    plan: Plan
    prospects: list[tuple[str, Prospect]]
    columns: Mapping[str, FloatArray]
    times: FloatArray
    """Microseconds and grading seconds, shape [measured, 2]."""
    num_offered: int


def _measured(entry: MatrixEntry, pattern: Pattern, joined: _Joined) -> Measured:
    plan = joined.plan
    prospects = [FamilyProspect(FAMILIES[name], prospect) for name, prospect in joined.prospects]
    grid = Grid(work_of(pattern, plan.element_type, plan.num_dense_cols), plan.operation, plan.element_type, prospects)
    times_us, grading_s = joined.times[:, 0], joined.times[:, 1]
    return Measured(entry, plan, grid, joined.columns, times_us, grading_s, joined.num_offered)


def read_records(sweeps: Sequence[Path]) -> Iterator[Record]:
    """Lines of the files, packed (`.xz`) or not, as they are."""
    for sweep in sweeps:
        is_packed = sweep.suffix == ".xz"
        with lzma.open(sweep, "rt", encoding="utf-8") if is_packed else sweep.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _join(words: Mapping[str, int], work: tuple[Path, str, list[Record]]) -> list[_Joined]:
    pack, name, records = work
    pattern = dict(read_pack(pack, [name]))[name]
    by_plan: dict[Plan, list[Record]] = defaultdict(list)
    for record in records:
        by_plan[Plan(record["operation"], record["element_type"], record["num_dense_cols"], 0)].append(record)
    found = []
    for plan, of_plan in by_plan.items():
        reorder: ReorderOption = "allowed" if REORDERING & {record["family"] for record in of_plan} else "keep"
        grid = grid_of(pattern, plan.operation, plan.element_type, plan.num_dense_cols, reorder)
        found.append(_joined(plan, grid, words, of_plan))
    return found


def _joined(plan: Plan, grid: Grid, words: Mapping[str, int], records: list[Record]) -> _Joined:
    places = {_key(prospect.family.name, prospect.parameters): index for index, prospect in enumerate(grid.prospects)}
    best: dict[int, tuple[float, float]] = {}
    for record in records:
        index = places.get(_key(record["family"], _completed(record)))
        if index is not None:
            measured = (float(record["median_us"]), float(record.get("grading_s", "nan")))
            best[index] = min(best.get(index, measured), measured)
    indices = sorted(best)
    chosen = grid.subset(indices)
    return _Joined(
        plan=plan,
        prospects=[(prospect.family.name, prospect.prospect) for prospect in chosen.prospects],
        columns=columns_of(chosen, words, among=grid) if indices else {},
        times=np.array([best[index] for index in indices], np.float64).reshape(-1, 2),
        num_offered=len(grid.prospects),
    )


def _completed(record: Record) -> dict[str, ParameterValue]:
    known = FAMILIES[record["family"]].parameters if record["family"] in FAMILIES else {}
    return {**{name: value for name, value in ADDED_LATER.items() if name in known}, **record["parameters"]}


def _key(family: str, parameters: Mapping[str, ParameterValue]) -> Key:
    return family, frozenset(parameters.items())
