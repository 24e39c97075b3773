"""Measures kernel families over a pack of patterns: the records that the supervised stage learns from.

    python -m benchmarks.tuning.sweep PACK OUT.jsonl.xz --seconds 540 [--plan spmv:float32:1:28 spmm:float32:32:8 ...]
    python -m benchmarks.tuning.sweep PACK OUT.jsonl.xz --random 0.5        half of each plan's programs chosen from all prospects
    python -m benchmarks.tuning.sweep PACK OUT.jsonl.xz --exhaustive --names FILE [--families csr_vector,sell]

A plan's programs are proposals (likely winners); `--random` takes some from everything that the families offer, so that
a cost model sees what is not promising; `--exhaustive` measures all of it, whatever the plan's number. Workloads are taken plan by plan, small patterns first, until the time is spent. Programs that fail are counted by
outcome and written to OUT.failures.json with their texts: a family that is wrong somewhere must be seen.
"""

import argparse
import csv
import json
import lzma
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import cast

from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.matrices.training_pack import TRAINING_NNZ
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FamilyInstance
from sparsesmith.families.catalogue import REORDERING
from sparsesmith.families.family import different
from sparsesmith.families.proposal import FamilyProspect, by_estimate, prospects_of, work_of
from sparsesmith.matrix.pack import pack_index, read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, FromFamily, Passed, Workload
from sparsesmith_proto.message import ElementType, Operation
from sparsesmith_proto.words import ReorderOption

DEFAULT_PLANS = (
    "spmv:float32:1:28",
    "spmv:float64:1:14",
    "spmm:float32:8:10",
    "spmm:float32:32:10",
    "spmm:float32:128:6",
)
PROPOSALS_AHEAD = 8
COMPILE_S = 120
EXHAUSTIVE_COMPILE_S = 900
"""How long programs of one workload may come out of the compiler."""


@dataclass(frozen=True)
class Plan:
    """Which workload each pattern gets, and how many proposals of it are measured."""

    operation: Operation
    element_type: ElementType
    num_dense_cols: int
    limit: int


@dataclass(frozen=True)
class Choice:
    """Which of the prospects are measured."""

    random_share: float = 0.0
    """Of a plan's programs, chosen from all prospects instead of proposed."""
    exhaustive: bool = False
    families: frozenset[str] = frozenset()
    """Only these; empty: all that keep the order of rows and columns."""

    def prospects(self, prospects: list[FamilyProspect], limit: int, seed: str) -> Iterator[FamilyProspect]:
        """At least `limit` of them where there are so many, the chosen ones first."""
        offered = [entry for entry in prospects if not self.families or entry.family.name in self.families]
        if self.exhaustive:
            return iter(offered)
        num_random = round(self.random_share * limit)
        ranked = by_estimate(offered)
        likely, rest = ranked[: limit - num_random], ranked[limit - num_random :]
        others = random.Random(seed).sample(rest, len(rest)) if num_random else rest
        return chain(likely, others)


@dataclass(frozen=True, eq=False)
class Proposals:
    """What is to be measured on one workload."""

    name: str
    plan: Plan
    pattern: Pattern
    instances: list[FamilyInstance]


def parse_plan(text: str) -> Plan:
    operation, element_type, num_dense_cols, limit = text.split(":")
    return Plan(operation, cast(ElementType, element_type), int(num_dense_cols), int(limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--plan", nargs="+", default=DEFAULT_PLANS, help="operation:type:columns:programs")
    parser.add_argument("--max-nnz", type=int, default=3_000_000)
    parser.add_argument("--names", type=Path, help="file with one pattern name a line: only these")
    parser.add_argument(
        "--families", default="", help="names with commas between: only these, such as row_bins_reordered"
    )
    parser.add_argument(
        "--random", type=float, default=0.0, help="share of a plan's programs chosen from all prospects"
    )
    parser.add_argument("--exhaustive", action="store_true", help="all prospects, whatever the plan's number")
    options = parser.parse_args()
    choice = Choice(options.random, options.exhaustive, frozenset(filter(None, options.families.split(","))))
    deadline = time.monotonic() + options.seconds
    settings, outcomes, failures = EvaluatorSettings(), Counter[str](), list[dict[str, str]]()
    num_workers = max(1, (os.cpu_count() or 1) - 3)
    wanted = options.names.read_text(encoding="utf-8").split() if options.names else None
    names = _names(options.pack, options.max_nnz, wanted)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_workers, timeout_s=settings.compile_limit_s) as compiler,
        lzma.open(options.out, "wt", preset=4) as records,
    ):
        device = process.start()
        work = [(name, plan) for plan in map(parse_plan, options.plan) for name in names]
        print(f"{device.name}: {len(work)} workloads, {num_workers} compilers", flush=True)
        for number, proposals in enumerate(_proposed(options.pack, work, choice), start=1):
            for line in measured_records(proposals, process, compiler, settings, outcomes, failures):
                records.write(json.dumps(line) + "\n")
            if number % 50 == 0:
                print(
                    f"{number} workloads, {options.seconds - deadline + time.monotonic():.0f} s, {dict(outcomes)}",
                    flush=True,
                )
            if time.monotonic() > deadline:
                print(f"time is up after {number} of {len(work)} workloads", flush=True)
                break
    options.out.with_suffix(".failures.json").write_text(json.dumps(failures, indent=1))
    print(dict(outcomes), flush=True)


def _names(pack: Path, max_nnz: int, wanted: list[str] | None) -> list[str]:
    """Patterns of the pack, small ones first: of the development split, or made to train on."""
    packed = pack_index(pack)
    with SPLIT_FILE.open(encoding="utf-8", newline="") as rows:
        sizes = {row["name"]: int(row["nnz"]) for row in csv.DictReader(rows) if row["name"] in packed}
    sizes |= {name: nnz for name, nnz in TRAINING_NNZ.items() if name in packed}
    chosen = [name for name, nnz in sizes.items() if nnz <= max_nnz and (not wanted or name in wanted)]
    return sorted(chosen, key=sizes.__getitem__)


def _proposed(pack: Path, work: list[tuple[str, Plan]], choice: Choice) -> Iterator[Proposals]:
    """Proposals in order, made ahead in other processes."""
    waiting: list[Future[Proposals]] = []
    pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    try:
        for name, plan in work:
            waiting.append(pool.submit(_propose, pack, name, plan, choice))
            if len(waiting) > PROPOSALS_AHEAD:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _propose(pack: Path, name: str, plan: Plan, choice: Choice) -> Proposals:
    return proposals_of(name, dict(read_pack(pack, [name]))[name], plan, choice)


def proposals_of(name: str, pattern: Pattern, plan: Plan, choice: Choice) -> Proposals:
    """The plan's programs for a pattern, written."""
    work = work_of(pattern, plan.element_type, plan.num_dense_cols)
    reorder: ReorderOption = "allowed" if choice.families & REORDERING else "keep"
    offered = prospects_of(work, plan.operation, plan.element_type, reorder)
    chosen = choice.prospects(offered, plan.limit, name)
    instances = different(entry.instance(plan.element_type, plan.num_dense_cols) for entry in chosen)
    limit = None if choice.exhaustive else plan.limit
    return Proposals(name, plan, pattern, list(islice(instances, limit)))


def measured_records(
    proposals: Proposals,
    process: DeviceProcess,
    compiler: Compiler,
    settings: EvaluatorSettings,
    outcomes: Counter[str],
    failures: list[dict[str, str]],
) -> Iterator[dict[str, object]]:
    """One record a program that passed."""
    plan = proposals.plan
    workload = Workload(
        pattern=proposals.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )
    candidates = tuple(
        Candidate(
            candidate_id=f"c{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(proposals.instances)
    )
    by_program = {instance.program: instance for instance in proposals.instances}
    race = Race(float("inf"))
    patience_s = COMPILE_S if len(candidates) <= 256 else EXHAUSTIVE_COMPILE_S
    try:
        with CompilationsAhead(compiler, process.description().architecture, settings.compile_limit_s) as ahead:
            parsed = ahead.start(parse_candidate(each, workload) for each in candidates)
            workbench = process.open(Problem(workload, proposals.pattern))
            for each in ahead.as_compiled(parsed, time.monotonic() + patience_s):
                began = time.monotonic()
                outcome = evaluate_kernel(each, ahead.result, workbench, race)
                outcomes[outcome.outcome] += 1
                instance = by_program[each.candidate.program]
                if isinstance(outcome, Passed):
                    yield {
                        "pattern": proposals.name,
                        "operation": plan.operation,
                        "element_type": plan.element_type,
                        "num_dense_cols": plan.num_dense_cols,
                        "family": instance.family,
                        "parameters": dict(instance.parameters),
                        "program": each.candidate.program,
                        "median_us": outcome.timing.median_us,
                        "best_baseline_us": None,
                        "grading_s": round(time.monotonic() - began, 5),
                    }
                elif len(failures) < 500:
                    failures.append(
                        {"pattern": proposals.name, "family": instance.family, "program": each.candidate.program}
                        | {"outcome": outcome.model_dump_json()[:2000]}
                    )
    except SparsesmithError as error:
        outcomes["workload failed"] += 1
        failures.append({"pattern": proposals.name, "outcome": error.message})


if __name__ == "__main__":
    main()
