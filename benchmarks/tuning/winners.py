"""The fastest recorded programs of workloads, as programs to be changed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.measure.measured import ADDED_LATER, matrix_entries, read_records
from benchmarks.tuning.sweep import Plan
from sparsesmith.families import FAMILIES, FamilyInstance
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.mutation import Subject, subject_of
from sparsesmith_proto.kernel import Workload


@dataclass(frozen=True)
class Winner:
    """Of one workload, the fastest of its records (or of those of one family) that the families still write."""

    matrix: str
    split: str
    nnz: int
    plan: Plan
    instance: FamilyInstance
    median_us: float
    """As it was recorded."""

    @property
    def key(self) -> str:
        """`tub1000 spmv float32 1 row_bins`."""
        plan = self.plan
        return f"{self.matrix} {plan.operation} {plan.element_type} {plan.num_dense_cols} {self.instance.family}"

    def workload(self, pattern: Pattern) -> Workload:
        return Workload(
            pattern=pattern.digest,
            operation=self.plan.operation,
            element_type=self.plan.element_type,
            num_dense_cols=self.plan.num_dense_cols,
        )

    def subject(self, pattern: Pattern) -> Subject:
        plan, instance = self.plan, self.instance
        return subject_of(instance.program, pattern, plan.operation, plan.element_type, plan.num_dense_cols, instance)


def read_winners(
    records: Sequence[Path], splits: Iterable[str], max_nnz: int, *, of_each_family: bool = False
) -> list[Winner]:
    """One a workload of matrices of these sides of the split, or one a workload and family; small ones first."""
    entries, wanted = matrix_entries(), frozenset(splits)
    best: dict[tuple[str, Plan, str], Mapping[str, Any]] = {}
    for record in read_records(records):
        entry = entries.get(record["pattern"])
        if entry is None or entry.split not in wanted or entry.nnz > max_nnz or not _is_written(record):
            continue
        key = record["pattern"], _plan(record), record["family"] if of_each_family else ""
        if key not in best or record["median_us"] < best[key]["median_us"]:
            best[key] = record
    found = [
        Winner(name, entries[name].split, entries[name].nnz, plan, _instance(record, plan), record["median_us"])
        for (name, plan, _), record in best.items()
    ]
    return sorted(found, key=lambda winner: (winner.nnz, winner.key))


def spread(winners: Iterable[Winner], most: int) -> list[Winner]:
    """Some of them at random, kinds of workload and families taking turns. The same ones each time."""
    shuffled = list(winners)
    Random("winners").shuffle(shuffled)
    groups: dict[tuple[str, str, int, str], list[Winner]] = defaultdict(list)
    for winner in shuffled:
        plan = winner.plan
        groups[plan.operation, plan.element_type, plan.num_dense_cols, winner.instance.family].append(winner)
    turns = chain.from_iterable(zip_longest(*groups.values()))
    return [winner for winner in turns if winner is not None][:most]


def patterns_of(winners: Iterable[Winner], packs: Sequence[Path]) -> Iterator[tuple[str, Pattern]]:
    """By name, one in memory at a time."""
    names = list(dict.fromkeys(winner.matrix for winner in winners))
    for pack in packs:
        yield from read_pack(pack, names)


def _plan(record: Mapping[str, Any]) -> Plan:
    return Plan(record["operation"], record["element_type"], record["num_dense_cols"], 0)


def _parameters(record: Mapping[str, Any]) -> dict[str, Any]:
    known = FAMILIES[record["family"]].parameters
    return {**{name: value for name, value in ADDED_LATER.items() if name in known}, **record["parameters"]}


def _is_written(record: Mapping[str, Any]) -> bool:
    family, plan = FAMILIES.get(record["family"]), _plan(record)
    return family is not None and family.accepts(_parameters(record), plan.element_type, plan.num_dense_cols)


def _instance(record: Mapping[str, Any], plan: Plan) -> FamilyInstance:
    family = FAMILIES[record["family"]]
    return family.instance(_parameters(record), plan.element_type, plan.num_dense_cols)
