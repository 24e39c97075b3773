"""Kernels for matrices of a benchmark, tuned in this process by families: reports as the service answers, no queue.

The device belongs to a process of its own while it tunes; it is given back before anything of the benchmark is timed.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.measure.instant import candidate_of
from benchmarks.origin import ROOT
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.settings import EvaluatorSettings
from services.generator.orders import KernelOrder
from services.generator.search.verdict import Progress, conclude
from services.generator.task import TuningTask
from sparsesmith.operations import Problem
from sparsesmith.program.atomics import allowed_texts
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.instant import Choice
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.api import Budget, KernelReport, TuningOptions
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import DeviceDescription, Passed
from sparsesmith_proto.words import ReorderOption

BATCH = 12


class TunedHere:
    """One device."""

    def __init__(self, process: DeviceProcess, compiler: Compiler, candidates: int, cost_model: Path) -> None:
        self._process = process
        self._grader = Grader(process, compiler)
        self._models = CostModels(cost_model)
        self._candidates = candidates

    @property
    def device(self) -> DeviceDescription:
        return self._process.description()

    def report(self, problem: Problem, reorder: ReorderOption = "keep") -> KernelReport:
        """Of so many candidates. Raises LimitExceeded, Unavailable."""
        budget = Budget(candidates=self._candidates, seconds=3600)
        options = TuningOptions(budget=budget, search="families", reorder=reorder)
        task = TuningTask("here", "here", KernelOrder(workload=problem.workload, options=options), problem)
        progress, cost = Progress(task), self._models.on(self.device.name, problem.workload.operation)
        limits, texts = TuningLimits(candidates=self._candidates), allowed_texts(problem.workload)
        tuner = Tuner(grid_of_problem(problem, reorder), cost, limits, texts)
        held = HeldMatrix(problem.pattern, problem.values)
        while batch := tuner.next_batch(BATCH):
            numbered = enumerate(batch, progress.num_graded)
            candidates = tuple(candidate_of(Choice(each, 0.0), f"c{number}") for number, each in numbered)
            job = EvaluationJob(
                job_id=f"here-{progress.num_graded}",
                workload=problem.workload,
                candidates=candidates,
                search=problem.pattern.digest,
            )
            report = self._grader.grade(job, held)
            progress.add(report)
            for instance, each in zip(batch, report.evaluations, strict=True):
                outcome = each.outcome
                tuner.tell(instance, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome)
        return conclude(progress)

    def give_back(self) -> None:
        """The device, until the next report."""
        self._process.close()


@contextmanager
def tuned_here(options: argparse.Namespace) -> Iterator[TunedHere]:
    """On the device that is found, an interpreter where there is no GPU."""
    settings = EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    with closing(device_process(settings)) as process, Compiler(max(1, num_cores() - 1)) as compiler:
        process.start()
        yield TunedHere(process, compiler, options.candidates, options.cost_model)


def add_tuning(parser: argparse.ArgumentParser) -> None:
    """What `tuned_here` needs of a command line, and what every benchmark of solvers has."""
    parser.add_argument("--candidates", type=int, default=64, help="for each kernel")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--seconds", type=float, default=24 * 3600, help="no row is begun after this time")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
