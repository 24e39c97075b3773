"""Equal bits, tried for long: deterministic searches over a suite, then each winner run again and again in fresh contexts.

    python -m benchmarks.measure.determinism [--pack FILE ...] [--runs 1000] [--contexts 6] [--candidates 24] [--max-nnz 1e7]
        [--beside 1] [--seconds S] [--without RESULT.json]

Every run is at addresses of its own, every context a process of its own on the device; all of a matrix's runs are on inputs
that follow from one seed. A result file says of each matrix the kernel, its speed over the best deterministic routine, and
how many runs gave other bits than the first: none is the promise. It is written after every matrix.

With `--candidates 0` nothing is searched for: the kernel is what the cost model chooses, and there is no speed. Then nothing
is timed, and `--beside` matrices may be run at once, each by a process of its own.
"""

import argparse
import json
import os
import platform
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from benchmarks.measure.instant import candidate_of, named_patterns
from benchmarks.origin import ROOT, command, device_folder, source_commit
from benchmarks.report.results import geometric_mean
from services.evaluator.candidates import parse_text
from services.evaluator.checking.repetition import Bits
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.program.atomics import is_ordered
from sparsesmith.program.program import KernelProgram
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.instant import Choice, choices
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Baselines, DeviceDescription, Evaluation, Passed, Workload

BATCH = 12
RUNS_LIMIT_S = 300.0


def main(arguments: list[str] | None = None) -> None:
    options = parsed(arguments)
    end = time.monotonic() + options.seconds
    settings = EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    with closing(device_process(settings)) as process, Compiler(max(1, num_cores() - 1)) as compiler:
        device = process.start()
        models = CostModels(options.cost_model)
        folder = options.out / ("cpu" if device.kind == "interpreter" else device_folder(device))
        rows: list[dict[str, Any]] = []
        if options.candidates == 0:
            process.close()
            found = _rows_beside(settings, compiler, models, options, device, end)
        else:
            found = _rows(Evaluator(process, compiler, models, options, device), patterns_of(options).items(), end)
        for row in found:
            rows.append(row)
            print(row, flush=True)
            _write(rows, device, options, folder)


def _rows(evaluator: "Evaluator", patterns: Iterable[tuple[str, Pattern]], end: float) -> Iterator[dict[str, Any]]:
    """None is begun after `end`, of time.monotonic."""
    for name, pattern in patterns:
        if time.monotonic() > end:
            return
        try:
            yield evaluator.row(name, pattern)
        except SparsesmithError as error:
            yield {**_nothing(name, pattern), "failed": error.message}


def _rows_beside(
    settings: EvaluatorSettings,
    compiler: Compiler,
    models: CostModels,
    options: argparse.Namespace,
    device: DeviceDescription,
    end: float,
) -> Iterator[dict[str, Any]]:
    """By as many threads as are asked for, each with processes of its own; in the order in which they are done."""
    left, done = Queue[tuple[str, Pattern]](), Queue[dict[str, Any] | None]()
    for each in patterns_of(options).items():
        left.put(each)

    def work() -> None:
        try:
            with closing(device_process(settings)) as process:
                for row in _rows(Evaluator(process, compiler, models, options, device), _taken(left), end):
                    done.put(row)
        finally:
            done.put(None)

    with ThreadPoolExecutor(options.beside) as threads:
        running = [threads.submit(work) for _ in range(options.beside)]
        for _ in running:
            yield from iter(done.get, None)
    for thread in running:
        thread.result()


def _taken(left: "Queue[tuple[str, Pattern]]") -> Iterator[tuple[str, Pattern]]:
    """What no other thread has taken, until nothing is left."""
    with suppress(Empty):
        while True:
            yield left.get_nowait()


def _write(
    rows: Sequence[dict[str, Any]], device: DeviceDescription, options: argparse.Namespace, folder: Path
) -> None:
    """After every matrix: a run that is cut off leaves what it had."""
    found = [row["speedup"] for row in rows if "speedup" in row]
    result = {
        "kind": "determinism",
        "device": device.model_dump(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": command("benchmarks.measure.determinism"),
        "matrices": len(rows),
        "runs": sum(row["runs"] for row in rows),
        "contexts": options.contexts,
        "searched": options.candidates > 0,
        "differing": sum(row["differing"] for row in rows),
        "speedup_over_best_deterministic": geometric_mean([max(1.0, speedup) for speedup in found]) if found else None,
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    name = "determinism.json" if options.candidates else "determinism-chosen.json"
    (folder / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


class Evaluator:
    """One device, whose contexts come and go."""

    def __init__(
        self,
        process: DeviceProcess,
        compiler: Compiler,
        models: CostModels,
        options: argparse.Namespace,
        device: DeviceDescription,
    ) -> None:
        self._process = process
        self._device = device
        self._compiler = compiler
        self._grader = Grader(process, compiler)
        self._models = models
        self._options = options

    def row(self, name: str, pattern: Pattern) -> dict[str, Any]:
        workload = Workload(
            pattern=pattern.digest, operation="spmv", element_type=self._options.type, deterministic=True
        )
        problem = Problem(workload, pattern)
        if self._options.candidates == 0:
            return self._chosen_row(name, problem)
        best, baselines = self._best(problem)
        row = _nothing(name, pattern)
        if best is None or not isinstance(best.outcome, Passed):
            return row
        routine = baselines.best_routine()
        tried = self._tried(problem, best.candidate.program)
        return row | {
            "kernel": best.candidate.origin.model_dump(),
            "routine": routine.routine,
            "speedup": routine.timing.median_us / best.outcome.timing.median_us,
            "timing": best.outcome.timing.kind,
            **tried,
        }

    def _chosen_row(self, name: str, problem: Problem) -> dict[str, Any]:
        assert problem.matrix is not None, "a product's problem has a matrix"
        chosen = next(choices(problem, self._models.on(self._device.name), is_ordered), None)
        row = _nothing(name, problem.matrix)
        if chosen is None:
            return row
        candidate = candidate_of(chosen, "c0")
        return row | {"kernel": candidate.origin.model_dump(), **self._tried(problem, chosen.instance.program)}

    def _best(self, problem: Problem) -> tuple[Evaluation | None, Baselines]:
        """The fastest that passed, and what it was timed beside."""
        options, held = self._options, HeldMatrix(problem.pattern, None)
        cost = self._models.on(self._device.name)
        limits = TuningLimits(candidates=options.candidates)
        tuner, evaluations = Tuner(grid_of_problem(problem), cost, limits, is_ordered), list[Evaluation]()
        while batch := tuner.next_batch(BATCH):
            candidates = tuple(candidate_of(Choice(each, 0.0), f"c{number}") for number, each in enumerate(batch))
            job = EvaluationJob(
                job_id=f"batch-{len(evaluations)}",
                workload=problem.workload,
                candidates=candidates,
                search=problem.pattern.digest,
            )
            report = self._grader.grade(job, held)
            evaluations += report.evaluations
            for instance, each in zip(batch, report.evaluations, strict=True):
                outcome = each.outcome
                tuner.tell(instance, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome)
        passed = [
            (each.outcome.standing, place) for place, each in enumerate(evaluations) if isinstance(each.outcome, Passed)
        ]
        return (evaluations[min(passed)[1]] if passed else None), report.baselines

    def _tried(self, problem: Problem, text: str) -> dict[str, Any]:
        """Runs in fresh contexts, and those of them whose bits are others than the first context's."""
        program, seed = parse_text(text, problem.workload), secrets.randbits(128)
        assert isinstance(program, KernelProgram)
        binary = self._compiler.compile(program.source, self._device.architecture)
        assert isinstance(binary, Compiled)
        first, runs, differing, began, reasons = "", 0, 0, time.perf_counter(), list[str]()
        for _ in range(self._options.contexts):
            self._process.close()
            found = self._process.open(problem).bits(program, binary, seed, self._options.runs, RUNS_LIMIT_S)
            runs += self._options.runs
            if not isinstance(found, Bits):
                differing += 1
                reasons.append(found.message)
            elif first and found.digest != first:
                differing += self._options.runs
            first = first or (found.digest if isinstance(found, Bits) else "")
        return {
            "runs": runs,
            "differing": differing,
            "reasons": reasons,
            "seconds": round(time.perf_counter() - began, 1),
        }


def _nothing(name: str, pattern: Pattern) -> dict[str, Any]:
    """What is told of a matrix without a kernel."""
    return {"name": name, "nnz": pattern.nnz, "kernel": None, "runs": 0, "differing": 0}


def patterns_of(options: argparse.Namespace) -> dict[str, Pattern]:
    """Of packs, one after the other, else made here; up to the bound, and none of an earlier result."""
    known = _names(options.without) if options.without else set()
    packs = map(read_pack, options.pack) if options.pack else [named_patterns(options.nnz).items()]
    packed = chain.from_iterable(packs)
    small = ((name, each) for name, each in packed if each.nnz <= options.max_nnz and name not in known)
    return dict(islice(small, options.matrices))


def _names(result: Path) -> set[str]:
    return {row["name"] for row in json.loads(result.read_text(encoding="utf-8"))["rows"]}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, nargs="+", help="patterns; without it six kinds are made")
    parser.add_argument("--without", type=Path, help="an earlier result, whose matrices are left out")
    parser.add_argument("--matrices", type=int, default=100, help="of the packs, at most")
    parser.add_argument("--nnz", type=float, default=1e5, help="of the patterns that are made")
    parser.add_argument("--max-nnz", type=float, default=1e7)
    parser.add_argument("--runs", type=int, default=1000, help="in each context")
    parser.add_argument("--contexts", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=24, help="0: the cost model's choice, nothing timed")
    parser.add_argument("--beside", type=int, default=1, help="matrices at once, where nothing is timed")
    parser.add_argument("--seconds", type=float, default=24 * 3600, help="no matrix is begun after this time")
    parser.add_argument("--type", choices=("float32", "float64"), default="float32")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
