"""What policy and mutators bring at equal seconds of one GPU, sampling and grading both counted.

    python -m benchmarks.tuning.equal_seconds PACK [--plan spmv:float32:1 spmm:float32:32 ...] [--seconds-each 10]
        [--arms families on auto mutate down random] [--matrices 12] [--seeds 0 1 2] [--seconds S] [--resume] [--out benchmarks/results]
    python -m benchmarks.tuning.equal_seconds PACK --no-generated --names @benchmarks/ablation_matrices.txt --seconds-each 3
        --plan spmv:float32:1 spmm:float32:32 --learned FOLDER --arms families draws mutants auto mutate edits learned sample
        shuffled blind sample-learned

Each workload is searched once by every arm, the arms in turns on the same matrix, their order another one for each workload:

    families   the tuner alone
    on         the tuner without its early end
    auto       tuner and policy, as `search=auto` runs them
    mutate     the same and mutators (SPARSESMITH_GENERATOR_MUTATES)
    down       `auto` whose policy's engine never comes up
    random     `auto` whose policy has random weights: what it writes is no program

and where they are asked for

    polish     the tuner, and in the end its fastest programs with blocks of sizes that no family offers
    draws      programs of the families' grid by chance, each once, in batches as large as the tuner's
    mutants    tuner and mutators, no policy
    edits      `auto`, and the policy is shown the fastest programs, too (SPARSESMITH_GENERATOR_EDITS)
    unreported the same, and what was measured of these programs is not shown
    sample     the policy alone
    shuffled   the same, shown the next matrix of the run, the last one the first; what it writes is graded on the right one
    blind      the same, shown zero embeddings in the matrix's place
    learned    `auto` with the policy of `--learned`, a folder
    sample-learned   that policy alone
    warm       `auto`, and the policy's samples are warm, without unlikely tokens (temperature 2, min-p 0.1)
    sample-warm      the policy alone, likewise
    valued     `auto`, and of several times as many samples the best by the value model of `--value` are graded
    sample-valued    the policy alone, likewise

`--seeds`: all workloads are searched once for each, which decides what a search leaves to chance. A matrix counts once in an interval, by the mean over
its seeds.

There is one engine for the arms with the policy of `--policy`, one for those of `--learned`, one for `random`.

An arm has the GPU for `--seconds-each`, by the wall clock, from the order to its last report: engine and evaluator share the
GPU in that time, as in a service, so what the engine samples counts whether or not something is graded meanwhile. Where nothing was
proposed in that time, nothing passed; the first report may be late, by as long again. The library's routines are
timed before the first arm; reading the matrix, too, is no arm's. An arm that has enough ends earlier. Then the arms' winners
are timed at length in turns (`us`), the engine idle; of an arm where nothing passed the best routine's time counts. Gains are the tuner's time
over the arm's, above 1 the arm is faster. Grading is in this process and its device's, with the inspections of an evaluator; there is no queue.

Matrices: core validation ones and generated ones, taken evenly by nonzeros, in a fixed random order, so that a run which is cut off
has some of each class. A row is written after every workload; `--resume` goes on where a run of the same commit, device and budget stopped.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.matrices.suites import Matrix, Source, core_sources, generated_sources
from benchmarks.measure.invention import digest
from benchmarks.origin import RESULTS, ROOT, command, device_folder, machine, source_commit, write_result
from benchmarks.report.policy import arm_gains
from benchmarks.tuning.arms import (
    ARMS,
    DEFAULT_ARMS,
    LEARNED,
    MOST_CANDIDATES,
    STRATEGY,
    VALUED,
    Arm,
    Models,
    Samplers,
    search_of,
    serving_samplers,
    showing,
    sources_of,
)
from benchmarks.tuning.beside_parent import Kept
from benchmarks.tuning.sweep import Plan, parse_plan
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process, inspections_beside
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.isolation.workbench import FinalTimes
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.settings import EvaluatorSettings
from services.generator.orders import KernelOrder
from services.generator.policy.sampling import PolicySampler
from services.generator.policy.value_filter import value_filter
from services.generator.search import Standing
from services.generator.search.grading import Evaluations, GradingLimits, graded
from services.generator.search.standing import source_of
from services.generator.search.verdict import Progress
from services.generator.settings import GeneratorSettings
from services.generator.task import TuningTask
from sparsesmith.errors import InvalidOption, SparsesmithError, Unavailable
from sparsesmith.operations import Problem
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import Budget, TuningOptions
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    DeviceDescription,
    EstimatedTiming,
    Evaluation,
    MeasuredTiming,
    Passed,
    UserWritten,
    Workload,
)

PLANS = ("spmv:float32:1", "spmv:float64:1", "spmm:float32:8", "spmm:float32:32", "spmm:float32:128")
COMPILE_S = 60.0
"""For the winners, which compiled before."""
READERS = 2
AHEAD = 3
"""Matrices that are read or made beside the one on the device."""
SWITCH_INTERVAL_S = 0.0005
"""Whoever feeds the device must not wait for the threads that rank and sample."""

Row = dict[str, Any]


def main() -> None:
    options = _options()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings, end = EvaluatorSettings(), time.monotonic() + options.seconds
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 1), timeout_s=settings.compile_limit_s) as compiler,
        inspections_beside(settings, process.start()) as inspections,
    ):
        bench = _Bench(process, compiler, Grader(process, compiler, inspections=inspections))
        results = _Results(options, process.description())
        asyncio.run(_run(bench, results, options, end))
    print(json.dumps(results.told()["kinds"], indent=1))


@dataclass(frozen=True)
class _Bench:
    """What grades."""

    process: DeviceProcess
    compiler: Compiler
    grader: Grader


class Here:
    """Evaluations on this machine's device, one job at a time; see `grading.Evaluations`."""

    def __init__(self, grader: Grader, held: HeldMatrix) -> None:
        self._grader = grader
        self._held = held
        self._turn = asyncio.Lock()

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        """A job that is cancelled keeps the device until it ends by itself: the next arm must not meet it there."""
        async with self._turn:
            grading = asyncio.ensure_future(asyncio.to_thread(self._grader.grade, job, self._held))
            try:
                return await asyncio.shield(grading)
            except asyncio.CancelledError:
                await asyncio.wait({grading})
                raise


class _Results:
    """The result file."""

    def __init__(self, options: argparse.Namespace, device: DeviceDescription) -> None:
        self._options = options
        self._device = device
        self._path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "equal-seconds.json"
        self.rows: list[Row] = self._before() if options.resume else []

    @property
    def _how(self) -> Row:
        return {
            "commit": self._options.commit or source_commit(),
            "policy": self._options.policy.name,
            "learned": self._options.learned and self._options.learned.name,
            "value": self._options.value and self._options.value.name,
            "cost_model": self._options.cost_model.name,
            "seconds_each": self._options.seconds_each,
            "arms": list(self._options.arms),
        }

    def knows(self, name: str, plan: Plan, seed: int) -> bool:
        asked = (name, told_plan(plan), seed)
        return any((row["name"], row["workload"], row.get("seed", 0)) == asked for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        write_result(self._path, self.told())

    def told(self) -> Row:
        return {
            "kind": "equal_seconds",
            "times": "measured" if self._device.kind == "cuda" else "estimated",
            "device": self._device.model_dump(mode="json"),
            **self._how,
            "machine": machine(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command("benchmarks.tuning.equal_seconds"),
            "kinds": arm_gains(self.rows),
            "rows": self.rows,
        }

    def _before(self) -> list[Row]:
        if not self._path.exists():
            return []
        before = json.loads(self._path.read_text(encoding="utf-8"))
        is_same = before["device"]["name"] == self._device.name
        is_same = is_same and all(before.get(name) == value for name, value in self._how.items())
        return [row for row in before["rows"] if "failed" not in row] if is_same else []


async def _run(bench: _Bench, results: _Results, options: argparse.Namespace, end: float) -> None:
    asked = workloads(options)
    others = shown_instead([source for _, source in asked]) if "shuffled" in options.arms else {}
    work = [
        _Work(plan, source, others.get(source.name), seed)
        for seed in options.seeds
        for plan, source in asked
        if not results.knows(source.name, plan, seed)
    ]
    async with AsyncExitStack() as stack:
        samplers = await serving_samplers(stack, {*options.arms}, options.policy, options.learned)
        models = Models(
            CostModels(options.cost_model), value_filter(options.value, GeneratorSettings().value_oversampling)
        )
        for number, (each, read) in enumerate(_read_ahead(work)):
            if time.monotonic() > end:
                return
            plan = each.plan
            matrix, other = await asyncio.to_thread(read.result)
            row: Row = {"name": matrix.name, "class": matrix.matrix_class, "split": matrix.split}
            row |= {"nnz": matrix.pattern.nnz, "workload": told_plan(plan), "seed": each.seed}
            arms_samplers = dict(samplers)
            if other is not None:
                row["shown"] = other.name
                arms_samplers["shuffled"] = showing(samplers["shuffled"], other.pattern)
            try:
                row |= await _contested(bench, matrix, each, arms_samplers, models, options, number)
            except SparsesmithError as error:
                row["failed"] = error.message
            results.add(row)
            print(_line(row), flush=True)


def workloads(options: argparse.Namespace) -> list[tuple[Plan, Source]]:
    """Plans taking turns on each matrix."""
    sources: list[Source] = [each for each in core_sources(options.pack) if each.split == "validation"]
    plans = [parse_plan(f"{plan}:{MOST_CANDIDATES}") for plan in options.plan]
    made = {} if options.no_generated else {each.name: each.nnz for each in generated_sources()}
    sources += [each for each in generated_sources() if each.name in made]
    if options.names is not None:
        sources = [each for each in sources if each.name in options.names]
    chosen = [sources[place] for place in _evenly(len(sources), options.matrices)]
    Random("equal seconds").shuffle(chosen)
    affordable = options.generated_products
    return [
        (plan, each) for each in chosen for plan in plans if made.get(each.name, 0) * plan.num_dense_cols <= affordable
    ]


def _evenly(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else [round(place * (count - 1) / (most - 1)) for place in range(most)]


def shown_instead(sources: Sequence[Source]) -> dict[str, Source]:
    """The next matrix in the place of each, by name. Raises InvalidOption where there is no other."""
    order = list({each.name: each for each in sources}.values())
    if len(order) < 2:
        raise InvalidOption(f"shuffled: {len(order)} matrices are there, at least 2 are needed", field="arms")
    return {each.name: following for each, following in zip(order, [*order[1:], order[0]], strict=True)}


@dataclass(frozen=True)
class _Work:
    """One workload; picklable."""

    plan: Plan
    source: Source
    shown: Source | None
    """In the place of its matrix, to one arm."""
    seed: int

    def load(self) -> tuple[Matrix, Matrix | None]:
        return self.source.load(), None if self.shown is None else self.shown.load()


def _read_ahead(work: Sequence[_Work]) -> Iterator[tuple[_Work, "Future[tuple[Matrix, Matrix | None]]"]]:
    """Matrices in other processes, in order."""
    with ProcessPoolExecutor(READERS, mp_context=get_context("spawn")) as readers:
        asked = ((each, readers.submit(each.load)) for each in work)
        waiting = list(islice(asked, AHEAD))
        try:
            while waiting:
                yield waiting.pop(0)
                waiting += islice(asked, 1)
        finally:
            readers.shutdown(wait=False, cancel_futures=True)


async def _contested(
    bench: _Bench,
    matrix: Matrix,
    work: _Work,
    samplers: Samplers,
    models: Models,
    options: argparse.Namespace,
    number: int,
) -> Row:
    """All arms on one workload, and their winners in turns."""
    plan = work.plan
    problem, held = Problem(_workload(matrix, plan), matrix.pattern), HeldMatrix(matrix.pattern, None)
    here = Here(bench.grader, held)
    await here.grade(_first_job(problem, options.seconds_each))
    models.cost.on(bench.process.description().name, plan.operation)
    arms: dict[Arm, Row] = {}
    winners: dict[Arm, Evaluation] = {}
    turn = number % len(options.arms)
    for arm in [*options.arms[turn:], *options.arms[:turn]]:
        arms[arm], winner = await searched(arm, problem, here, samplers.get(arm), models, options, work.seed)
        if winner is not None:
            winners[arm] = winner
    routine_us, final_us = await asyncio.to_thread(
        paired, bench, problem, [each.candidate for each in winners.values()]
    )
    for arm in arms:
        program = winners[arm].candidate.program if arm in winners else None
        us = routine_us if program is None else final_us.get(program)
        arms[arm] |= {"us": us, "program": None if program is None else digest(program)}
    return {
        "best_routine_us": routine_us,
        "first": options.arms[turn],
        "arms": {arm: arms[arm] for arm in options.arms},
    }


async def searched(
    arm: Arm,
    problem: Problem,
    here: Evaluations,
    sampler: PolicySampler | None,
    models: Models,
    options: argparse.Namespace,
    seed: int = 0,
) -> tuple[Row, Evaluation | None]:
    """One search: what it took and brought, and its fastest program."""
    settings, standing = GeneratorSettings(), Standing()
    task = _task(arm, problem, options.seconds_each, seed)
    progress = Progress(task)
    batches = STRATEGY[arm](task, sources_of(arm, sampler, models), MOST_CANDIDATES, standing)
    limits = GradingLimits(settings.batches_in_flight, options.seconds_each)
    try:
        async for report in graded(batches, task, here, limits, standing.lost):
            standing.add(report)
            progress.add(report)
    except Unavailable:
        if not _was_slow(task, sampler, standing):
            raise
    seconds = task.elapsed_s
    winner = None if progress.best is None else progress.best.evaluation
    row: Row = {
        "seconds": round(seconds, 3),
        "candidates": progress.num_graded,
        "passed": progress.outcomes["passed"],
        "search_us": None if winner is None else _us(winner),
        "by": None if winner is None else source_of(winner.candidate),
        "sources": {
            each.source: {
                "proposed": each.proposed,
                "passed": each.passed,
                "seconds": round(each.seconds, 3),
                "gain": round(each.gain, 5),
            }
            for each in standing.sources()
        },
    }
    return row, winner


def _was_slow(task: TuningTask, sampler: PolicySampler | None, standing: Standing) -> bool:
    """Whether an engine that serves wrote nothing in an arm's seconds: the arm brought nothing, which is a result."""
    is_serving = sampler is not None and sampler.host.engine is not None
    return is_serving and task.left_s <= 0 and not any(each.proposed for each in standing.sources())


def paired(bench: _Bench, problem: Problem, candidates: Sequence[Candidate]) -> tuple[float, dict[str, float]]:
    """Of the best routine, and of each different program by its text, timed at length in turns. A program that fails
    now, and passed before, has none."""
    texts = list(dict.fromkeys(each.program for each in candidates))
    named = {f"winner-{place}": text for place, text in enumerate(texts)}
    parsed = [
        parse_candidate(Candidate(candidate_id=name, program=text, origin=UserWritten()), problem.workload)
        for name, text in named.items()
    ]
    workbench, race = bench.process.open(problem), Kept(math.inf)
    best = workbench.baselines().best_routine()
    workbench.draw()
    with CompilationsAhead(bench.compiler, bench.process.description().architecture, COMPILE_S) as ahead:
        ahead.start(parsed)
        passed = [
            each.candidate.candidate_id
            for each in parsed
            if isinstance(evaluate_kernel(each, ahead.result, workbench, race), Passed)
        ]
        final = workbench.retime(passed, best.routine) if passed else None
    if not isinstance(final, FinalTimes):
        return best.timing.median_us, {}
    times = {
        named[name]: timing.median_us
        for name, timing in final.kernels.items()
        if isinstance(timing, MeasuredTiming | EstimatedTiming)
    }
    return final.routine.median_us, times


def _workload(matrix: Matrix, plan: Plan) -> Workload:
    return Workload(
        pattern=matrix.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )


def _first_job(problem: Problem, seconds: float) -> EvaluationJob:
    """Has the matrix opened and the routines timed."""
    grid = grid_of_problem(problem)
    instance = grid.instance(int(np.argmin(grid.estimates())))
    candidate = Candidate(candidate_id="first", program=instance.written, origin=UserWritten())
    budget_s = 60.0 + seconds
    return EvaluationJob(job_id="first", workload=problem.workload, candidates=(candidate,), budget_s=budget_s)


def _task(arm: Arm, problem: Problem, seconds: float, seed: int) -> TuningTask:
    workload = problem.workload
    options = TuningOptions(
        operation=workload.operation,
        element_type=workload.element_type,
        num_dense_cols=workload.num_dense_cols,
        search=search_of(arm),
        budget=Budget(candidates=MOST_CANDIDATES, seconds=seconds),
    )
    assert workload.pattern is not None, "of a matrix"
    run_id = f"{arm}-{workload.pattern[:12]}-{workload.operation}-{workload.element_type}-{workload.num_dense_cols}"
    run_id += f"-{seed}" if seed else ""
    return TuningTask(run_id, run_id, KernelOrder(workload=workload, options=options), problem)


def _us(evaluation: Evaluation) -> float:
    assert isinstance(evaluation.outcome, Passed)
    return evaluation.outcome.timing.median_us


def told_plan(plan: Plan) -> str:
    """`spmv float32`, `spmm 32 float32`."""
    columns = f" {plan.num_dense_cols}" if plan.operation == "spmm" else ""
    return f"{plan.operation}{columns} {plan.element_type}"


def _line(row: Row) -> str:
    if "failed" in row:
        return f"{row['name']} {row['workload']} FAILED {row['failed'][:200]}"
    told = (
        f"{arm} {'-' if of['us'] is None else format(of['us'], '.3f')} ({of['candidates']}, {of['seconds']:.1f} s)"
        for arm, of in row["arms"].items()
    )
    return f"{row['name']} {row['nnz']} {row['workload']} routine {row['best_routine_us']:.3f}: {', '.join(told)}"


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@"
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--plan", nargs="+", default=PLANS, help="operation:type:columns")
    parser.add_argument("--seconds-each", type=float, default=10.0, help="of the GPU, an arm and workload")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=DEFAULT_ARMS)
    parser.add_argument("--matrices", type=int, default=1000, help="at most, evenly taken")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="all workloads with one, then with the next")
    parser.add_argument("--names", nargs="+", help="only these matrices; @FILE: those of a file, one a line")
    parser.add_argument("--no-generated", action="store_true")
    parser.add_argument("--generated-products", type=float, default=3.3e8, help="nnz x columns at most")
    parser.add_argument("--policy", type=Path, default=ROOT / "models" / "sparsesmith-28m")
    parser.add_argument("--learned", type=Path, help="folder of another policy, for the arms of this name")
    parser.add_argument("--value", type=Path, help="folder of a value model, for the arms of this name")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--seconds", type=float, default=24 * 3600, help="no workload is begun after this time")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.arms = [arm for arm in ARMS if arm in options.arms]
    if "families" not in options.arms:
        parser.error("--arms lacks families: gains are over it")
    if options.learned is None and LEARNED & {*options.arms}:
        parser.error(f"--learned is missing: the arms {', '.join(sorted(LEARNED))} are of that policy")
    if options.value is None and VALUED & {*options.arms}:
        parser.error(f"--value is missing: the arms {', '.join(sorted(VALUED))} choose by a value model")
    return options


if __name__ == "__main__":
    main()
