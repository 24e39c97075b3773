"""Examples that nobody measured: programs that a cost model expects to be the fastest, of matrices made from others.

A few hundred measured workloads do not teach what to read in a matrix; a cost model learned from the same records says
of any matrix which of the families' programs are likely fast. Who learns from it learns no more than it knows:
measured examples stay beside it (`sft --taught`, `--taught-share`).
"""

import argparse
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import ceil, log2
from pathlib import Path

import numpy as np

from services.trainer.offline.example_file import write_examples
from services.trainer.offline.faults import refusal
from services.trainer.offline.records import NUM_SMS
from services.trainer.offline.sides import Patterns, side_of, sides_in
from services.trainer.offline.targets import MeasuredProgram, TargetRule, WorkloadKey, WorkloadTargets, targets_of
from services.trainer.offline.variants import variants
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.facts import Circumstances
from sparsesmith.tuning.cost import AnalyticCost, CostModel
from sparsesmith.tuning.grid import Choices, grid_of
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.message import ElementType, Operation

Kind = tuple[Operation, ElementType, int]
"""Of workloads: operation, type of elements, dense columns."""
WORKLOADS: tuple[Kind, ...] = (
    ("spmv", "float32", 1),
    ("spmv", "float64", 1),
    ("spmm", "float32", 8),
    ("spmm", "float32", 32),
    ("spmm", "float32", 128),
)
"""As the records have them."""
MOST_COLUMNS = 512
"""Of the dense operands, where their number is drawn."""


@dataclass(frozen=True)
class TeachingRule:
    """How much is made of one matrix."""

    variants: int = 8
    most_nnz: int = 1_000_000
    most: int = 8
    """Programs of a workload."""
    columns: int = 0
    """Products with other numbers of dense columns, of each matrix that was made and of its source."""


def add_teach(parser: argparse.ArgumentParser) -> None:
    """Options of the stage. Needs no GPU; about half a second a workload of 1e5 nonzeros on one core."""
    parser.add_argument("--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of .npz files")
    parser.add_argument("--split", type=Path, help="CSV with columns name, split; only the train side is used")
    parser.add_argument("--cost-model", type=Path, default=Path("models/cost-h200"))
    parser.add_argument("--variants", type=int, default=TeachingRule.variants, help="of each matrix")
    parser.add_argument("--most-nnz", type=float, default=TeachingRule.most_nnz)
    parser.add_argument("--most", type=int, default=TeachingRule.most, help="programs of a workload")
    parser.add_argument(
        "--columns",
        type=int,
        default=TeachingRule.columns,
        help="products with a drawn number of dense columns, of each matrix that is made and of its source",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out-patterns", type=Path, required=True, help=".pack of the matrices that were made")
    parser.add_argument("--out", type=Path, required=True, help=".jsonl or .jsonl.xz, examples of the train side")
    parser.set_defaults(run=_run_teach)


def _run_teach(options: argparse.Namespace) -> dict[str, object]:
    if isinstance(_models(options.cost_model).expected(), AnalyticCost):
        raise SystemExit(f"{options.cost_model} is no cost model that can be loaded here (it needs LightGBM)")
    patterns, sides = Patterns(options.patterns), sides_in(options.split)
    rule = TeachingRule(options.variants, int(options.most_nnz), options.most, options.columns)
    names = [name for name in patterns.names if side_of(name, sides) == "train"]
    jobs = ((name, patterns.named(name), options.cost_model, rule) for name in names)
    packed: dict[str, bytes] = {}
    taught: list[WorkloadTargets] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for of_name, workloads in pool.map(_taught, jobs):
            packed |= of_name
            taught += workloads
    write_pack(options.out_patterns, packed)
    head = {
        "taught_by": options.cost_model.name,
        "variants": rule.variants,
        "columns": rule.columns,
        "sources": len(names),
    }
    write_examples(options.out, head, (("train", each) for each in taught))
    return {"sources": len(names), "matrices": len(packed), "workloads": len(taught)}


def _taught(
    job: tuple[str, Pattern, Path, TeachingRule],
) -> tuple[dict[str, bytes], list[WorkloadTargets]]:
    """Of one matrix: what was made of it, packed, and what is to be learned of that."""
    name, source, folder, rule = job
    packed: dict[str, bytes] = {}
    workloads: list[WorkloadTargets] = []
    if source.nnz <= rule.most_nnz:
        workloads += taught_workloads(name, source, _models(folder), rule.most, drawn(name, rule.columns))
    for own, pattern in variants(name, source, rule.variants, rule.most_nnz):
        asked = (*WORKLOADS, *drawn(own, rule.columns))
        found = list(taught_workloads(own, pattern, _models(folder), rule.most, asked))
        if found:
            packed[own] = encode_pattern(pattern)
            workloads += found
    return packed, workloads


@cache
def _models(folder: Path) -> CostModels:
    """One for each process."""
    return CostModels(folder)


def drawn(name: str, count: int) -> list[Kind]:
    """Products with so many different numbers of dense columns that no record has: half of them powers of two, a
    quarter multiples of four, a quarter any. The same for the same name."""
    chance, recorded = random.Random(f"columns {name}"), {columns for _, _, columns in WORKLOADS}
    numbers: list[int] = []
    while len(numbers) < count:
        luck, size = chance.random(), 2 ** chance.uniform(1, log2(MOST_COLUMNS))
        number = 2 ** round(log2(size)) if luck < 0.5 else 4 * ceil(size / 4) if luck < 0.75 else round(size)
        if number not in recorded and number not in numbers:
            numbers.append(number)
    return [("spmm", "float32", number) for number in numbers]


def taught_workloads(
    name: str, pattern: Pattern, models: CostModels, most: int, workloads: Iterable[Kind] = WORKLOADS
) -> Iterator[WorkloadTargets]:
    """Of every kind of workload the programs that the model expects to be fastest, as far as they are legal."""
    for operation, element_type, columns in workloads:
        grid = grid_of(pattern, operation, element_type, columns)
        circumstances = Circumstances(pattern, columns, NUM_SMS)
        expected = tuple(
            program
            for program in expected_fastest(grid, models.expected(operation), most)
            if refusal(program.program, operation, element_type, circumstances) is None
        )
        if expected:
            key = WorkloadKey(name, operation, element_type, columns)
            yield WorkloadTargets(key, None, expected, targets_of(expected, TargetRule()), is_expected=True)


def expected_fastest(grid: Choices, cost: CostModel, most: int) -> Sequence[MeasuredProgram]:
    """Fastest first, each text once, with times over the first one's; families that the model does not know are left
    out."""
    unknown = cost.left_out | cost.never_seen
    known = [index for index, family in enumerate(grid.families) if family not in unknown]
    log_costs = cost.log_costs(grid)[known]
    programs: dict[str, MeasuredProgram] = {}
    for place in np.argsort(log_costs, kind="stable").tolist():
        instance = grid.instance(known[place])
        over_first = float(np.exp(log_costs[place] - log_costs.min()))
        plain = "" if instance.written == instance.program else instance.program
        programs.setdefault(instance.written, MeasuredProgram(instance.written, instance.family, over_first, plain))
        if len(programs) == most:
            break
    return tuple(programs.values())


def mixed(
    measured: Sequence[WorkloadTargets], taught: Sequence[WorkloadTargets], share: float
) -> list[WorkloadTargets]:
    """An epoch in which about that share is taught: those that were measured come as often as that takes, once at
    least. `share`: above 0, below 1."""
    if not taught:
        return list(measured)
    times = max(1, round(len(taught) * (1 - share) / share / max(len(measured), 1)))
    return [*_repeated(measured, times), *taught]


def _repeated(workloads: Iterable[WorkloadTargets], times: int) -> list[WorkloadTargets]:
    return [each for each in workloads for _ in range(times)]
