"""Measures what mutators gain: the tuner's best programs of train-side workloads, changed, each timed beside its parent.

    python -m benchmarks.tuning.harvest run FOLDER --pack PATTERNS.pack [MADE.pack] --workloads 60 --mutants 120 [--part 0/1] [--seconds S]
    python -m benchmarks.tuning.harvest spread FOLDER --gpus 4 --pack ... (as run)     one process a GPU, each with its part
    python -m benchmarks.tuning.harvest pack FOLDER OUT.jsonl.xz                       all parts in one file
    python -m benchmarks.tuning.harvest report OUT.jsonl.xz [MORE.jsonl.xz ...] [--out benchmarks/results] what came of it, by workload kind, class and deed

Workloads are chosen from the train side of benchmarks/split.csv, kinds and classes of nonzeros taking turns; those of
the harvests of `--beyond` are left out. The tuner searches each as in production; its best programs of different families
are parents. A child's seed and its parent's text give the child again; what is stored of it are the lines that differ.
With `--likely` some children more are what a search ends with (`sparsesmith.mutation.likely`), and marked as chosen.
Children that pass are timed at length in turns with their parent, a few at a time (`gain`: the parent's time over the
child's, from the same finals; of those far behind, from brief times); what fails is kept with its message. A part appends
to one file and goes on where it was stopped.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.matrices.suites import Packed
from benchmarks.measure.contest import hold
from benchmarks.measure.measured import MatrixEntry, matrix_entries
from benchmarks.measure.preparation import Prepared, Unprepared, Workshop, prepared_workloads
from benchmarks.origin import ROOT
from benchmarks.report.results import NNZ_CLASSES
from benchmarks.tuning.beside_parent import Judge, rounded, timed
from benchmarks.tuning.harvested import LIKELY, Line, cut_half_line, key_of, pack, read_lines, report
from benchmarks.tuning.sweep import Plan, parse_plan
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.device import Timing
from services.evaluator.devices import device_process
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.settings import EvaluatorSettings
from services.trainer.offline.edits import changed_lines
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pack import pack_index
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.mutation import Mutant, Subject, random_mutant, subject_of
from sparsesmith.mutation.likely import likely_mutants
from sparsesmith.operations import Problem
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import (
    Candidate,
    Evaluation,
    FromFamily,
    Passed,
    UserWritten,
    Workload,
)

PLANS = ("spmv:float32:1:40", "spmv:float64:1:40", "spmm:float32:8:40", "spmm:float32:32:40", "spmm:float32:128:40")
STEPS = (1, 1, 1, 2, 3)
"""Changes of a child, in turns: the gain of one is what is to be learned."""


@dataclass(frozen=True)
class Part:
    """The workloads of one process: every `count`-th, from `number` on."""

    number: int
    count: int

    @staticmethod
    def parsed(text: str) -> "Part":
        number, _, count = text.partition("/")
        return Part(int(number), int(count))

    def file(self, folder: Path) -> Path:
        return folder / f"part-{self.number}-of-{self.count}.jsonl"


@dataclass(frozen=True, eq=False)
class Parent:
    """A program to be changed."""

    number: int
    subject: Subject
    family: str


def workloads(
    packs: Sequence[Path], plans: Sequence[Plan], most: int, is_wanted: Callable[[MatrixEntry], bool]
) -> list[tuple[Packed, Plan]]:
    """Of the matrices that are wanted, kinds of workload and classes of nonzeros taking turns; the same ones each
    time."""
    groups: dict[tuple[Plan, str], list[tuple[Packed, Plan]]] = {}
    for plan in plans:
        for number in NNZ_CLASSES:
            groups[plan, number.name] = []
    for packed in packs:
        for entry in _wanted(packed, is_wanted):
            nnz_class = next(each.name for each in NNZ_CLASSES if each.low <= entry.nnz < each.high)
            for plan in plans:
                source = Packed(packed, entry.name, entry.matrix_class, entry.split)
                groups[plan, nnz_class].append((source, plan))
    for (plan, name), group in groups.items():
        Random(f"harvest {plan} {name}").shuffle(group)
    turns = chain.from_iterable(zip_longest(*groups.values()))
    return [each for each in turns if each is not None][:most]


def _wanted(pack_file: Path, is_wanted: Callable[[MatrixEntry], bool]) -> list[MatrixEntry]:
    packed = pack_index(pack_file)
    return [entry for entry in matrix_entries().values() if entry.name in packed and is_wanted(entry)]


def train_side(max_nnz: int) -> Callable[[MatrixEntry], bool]:
    """What may be learned from."""
    return lambda entry: entry.split == "train" and entry.nnz <= max_nnz


def problem_of(source: str, plan: Plan) -> Line:
    return {
        "pattern": source,
        "operation": plan.operation,
        "element_type": plan.element_type,
        "num_dense_cols": plan.num_dense_cols,
    }


def children_of(parent: Parent, count: int, likely: int = 0) -> dict[str, Mutant]:
    """Different programs by seed, and the first `likely` ones by their place; fewer where choices repeat themselves."""
    found: dict[str, Mutant] = {}
    seen = {parent.subject.text}
    by_chance = (
        (str(each), random_mutant(parent.subject, str(each), STEPS[each % len(STEPS)])) for each in range(count)
    )
    chosen = (
        (f"{LIKELY}-{each}", mutant) for each, mutant in enumerate(islice(likely_mutants(parent.subject), likely))
    )
    for seed, mutant in chain(by_chance, chosen):
        if mutant is not None and mutant.text not in seen:
            seen.add(mutant.text)
            found[seed] = mutant
    return found


class Harvest:
    """One part: its file, its device, its compilers."""

    def __init__(self, file: Path, process: DeviceProcess, compiler: Compiler, options: argparse.Namespace) -> None:
        self._process = process
        self._judge = Judge(process, compiler, EvaluatorSettings().compile_limit_s)
        self._options = options
        self._known = list(read_lines([file])) if file.is_file() else []
        cut_half_line(file)
        self._out = file.open("a", encoding="utf-8")

    def is_done(self, problem: Line) -> bool:
        return any(line["kind"] == "workload" and key_of(line) == key_of(problem) for line in self._known)

    def tended(self, prepared: Prepared) -> Line:
        """Everything of one workload; what an earlier run has of it stays."""
        began, problem = time.monotonic(), problem_of(prepared.matrix.name, prepared.plan)
        before = [line for line in self._known if key_of(line) == key_of(problem)]
        parents = self._parents(prepared, problem, before)
        outcomes = Counter[str]()
        for parent in parents:
            done = {line["seed"] for line in before if line["kind"] == "mutant" and line["parent"] == parent.number}
            for line in self._graded(parent, prepared.workload, prepared.matrix.pattern, problem, done):
                outcomes[line["outcome"]] += 1
                self._write(line)
        seconds = round(time.monotonic() - began, 2)
        end = {"kind": "workload", **problem, "parents": len(parents), "outcomes": dict(outcomes), "seconds": seconds}
        self._write(end)
        return end

    def close(self) -> None:
        self._out.close()

    def _write(self, line: Line) -> None:
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._out.flush()

    def _parents(self, prepared: Prepared, problem: Line, before: Sequence[Line]) -> list[Parent]:
        """The tuner's best of different families; those of an interrupted run again."""
        known = [line for line in before if line["kind"] == "parent"]
        with prepared.ahead:  # What was compiled ahead is of no use where the parents are known.
            if known:
                return [parent_of(line, prepared.matrix.pattern) for line in known]
            contest = hold(prepared, (), self._process)
        for number, evaluation in enumerate(best_of_families(contest.families, self._options.parents)):
            known.append(parent_line(problem, number, evaluation, contest.baselines.best_routine().timing))
            self._write(known[-1])
        return [parent_of(line, prepared.matrix.pattern) for line in known]

    def _graded(
        self, parent: Parent, workload: Workload, pattern: Pattern, problem: Line, done: set[str]
    ) -> Iterator[Line]:
        children = children_of(parent, self._options.mutants, self._options.likely)
        by_id = {f"child-{seed}": (seed, mutant) for seed, mutant in children.items() if seed not in done}
        wanted = [parse_candidate(_candidate(name, each.text), workload) for name, (_, each) in by_id.items()]
        for name, found in self._judge.graded(parent.subject.text, wanted, Problem(workload, pattern)):
            seed, mutant = by_id[name]
            line = {"kind": "mutant", **problem, "parent": parent.number, "seed": seed, "deed": mutant.deed}
            line |= {"chosen": LIKELY} if seed.startswith(LIKELY) else {}
            yield line | {"lines": changed_lines(parent.subject.text, mutant.text)} | found


def _candidate(name: str, program: str) -> Candidate:
    return Candidate(candidate_id=name, program=program, origin=UserWritten())


def best_of_families(evaluations: Iterable[Evaluation], most: int) -> list[Evaluation]:
    """The fastest that passed, one a family."""
    passed = [(each.outcome.standing, each) for each in evaluations if isinstance(each.outcome, Passed)]
    found: dict[str, Evaluation] = {}
    for _, evaluation in sorted(passed, key=lambda pair: pair[0]):
        origin = evaluation.candidate.origin
        if isinstance(origin, FromFamily):
            found.setdefault(origin.family, evaluation)
    return list(found.values())[:most]


def parent_line(problem: Line, number: int, evaluation: Evaluation, baseline: Timing) -> Line:
    candidate, outcome = evaluation.candidate, evaluation.outcome
    assert isinstance(candidate.origin, FromFamily)
    assert isinstance(outcome, Passed)
    return {
        "kind": "parent",
        **problem,
        "number": number,
        "family": candidate.origin.family,
        "parameters": candidate.origin.parameters,
        "program": candidate.program,
        **timed("tuned", outcome.timing),
        "best_baseline_us": rounded(baseline.median_us),
        "registers": outcome.resources.registers,
    }


def parent_of(line: Line, pattern: Pattern) -> Parent:
    kind = line["element_type"], line["num_dense_cols"]
    family = FAMILIES.get(line["family"])
    instance = None
    if family is not None and family.accepts(line["parameters"], *kind):
        written = family.instance(line["parameters"], *kind)
        instance = written if written.program == line["program"] else None
    subject = subject_of(line["program"], pattern, line["operation"], *kind, instance)
    return Parent(line["number"], subject, line["family"])


def run(options: argparse.Namespace) -> None:
    part, until = Part.parsed(options.part), time.monotonic() + options.seconds
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = workloads(
        options.pack, [parse_plan(each) for each in options.plan], options.workloads, train_side(options.max_nnz)
    )
    settings = EvaluatorSettings()
    num_compilers = max(1, ((os.cpu_count() or 1) - 2) // part.count)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        cost = CostModels(ROOT / "models" / "cost-h200").on(device.name)
        harvest = Harvest(part.file(options.folder), process, compiler, options)
        others = {key_of(line) for line in read_lines(options.beyond) if line["kind"] == "parent"}
        own = [
            each
            for each in chosen[part.number :: part.count]
            if not harvest.is_done(problem := problem_of(each[0].name, each[1])) and key_of(problem) not in others
        ]
        workshop = Workshop(cost, compiler, device.architecture, settings.compile_limit_s)
        with closing(harvest), closing(prepared_workloads(own, workshop)) as prepared:
            _write_device(options.folder, device.model_dump())
            for each in prepared:
                if isinstance(each, Unprepared):
                    print(f"{each.name} could not be prepared: {each.message}", flush=True)
                    continue
                try:
                    print(json.dumps(harvest.tended(each)), flush=True)
                except SparsesmithError as error:
                    print(f"{each.matrix.name} could not be measured: {error.message}", flush=True)
                if time.monotonic() > until:
                    print("time is up", flush=True)
                    break


def _write_device(folder: Path, device: Mapping[str, Any]) -> None:
    (folder / "device.json").write_text(json.dumps(device), encoding="utf-8")


def spread(options: argparse.Namespace, words: Sequence[str]) -> None:
    """One process a GPU; each writes a part, and a log beside it."""
    options.folder.mkdir(parents=True, exist_ok=True)
    running = []
    for number in range(options.gpus):
        command = [
            sys.executable,
            "-m",
            "benchmarks.tuning.harvest",
            "run",
            *words,
            "--part",
            f"{number}/{options.gpus}",
        ]
        environment = {**os.environ, "SPARSESMITH_EVALUATOR_CUDA_DEVICE": str(number)}
        log = (options.folder / f"part-{number}.log").open("a", encoding="utf-8")
        running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    codes = [process.wait() for process in running]
    print(f"parts ended with {codes}")


def main() -> None:
    options, words = _options()
    match options.deed:
        case "run":
            run(options)
        case "spread":
            spread(options, words)
        case "pack":
            pack(options.folder, options.file, options.commit)
        case "report":
            command = f"python -m benchmarks.tuning.harvest report {' '.join(file.name for file in options.file)}"
            print(json.dumps(report(options.file, options.out, command)["all"]))


def _options() -> tuple[argparse.Namespace, list[str]]:
    """And the words of `run` that `spread` hands on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    deeds = parser.add_subparsers(dest="deed", required=True)
    for name in ("run", "spread"):
        deed = deeds.add_parser(name)
        deed.add_argument("folder", type=Path)
        deed.add_argument("--pack", type=Path, nargs="+", required=True)
        deed.add_argument("--plan", nargs="+", default=PLANS, help="operation:type:columns:candidates of the tuner")
        deed.add_argument("--workloads", type=int, default=60)
        deed.add_argument("--max-nnz", type=int, default=20_000_000)
        deed.add_argument("--parents", type=int, default=2, help="of a workload, of different families")
        deed.add_argument("--mutants", type=int, default=60, help="of a parent, by chance")
        deed.add_argument("--likely", type=int, default=0, help="of a parent, what a search ends with")
        deed.add_argument(
            "--beyond", type=Path, nargs="*", default=[], help="packed harvests whose workloads are left out"
        )
        deed.add_argument("--seconds", type=float, default=1e9, help="no workload is begun after this time")
        if name == "run":
            deed.add_argument("--part", default="0/1", help="NUMBER/COUNT")
        else:
            deed.add_argument("--gpus", type=int, required=True)
    packing = deeds.add_parser("pack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("file", type=Path)
    packing.add_argument("--commit", default="", help="of the code, where git does not say")
    reporting = deeds.add_parser("report")
    reporting.add_argument("file", type=Path, nargs="+")
    reporting.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    words = sys.argv[2:]
    if "--gpus" in words:
        place = words.index("--gpus")
        words = words[:place] + words[place + 2 :]
    return options, words


if __name__ == "__main__":
    main()
