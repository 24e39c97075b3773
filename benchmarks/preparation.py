"""Workloads made ready ahead of the GPU: the matrix read or made in another process, its grid of programs ranked, the
first batch in the compilers, while the workload before is on the device."""

import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from benchmarks.structure import Structure, structure_of
from benchmarks.suites import Matrix, Source
from benchmarks.sweep import Plan
from services.evaluator.compilation import Compiler
from services.evaluator.compile_ahead import CompilationsAhead
from sparsesmith.domain.families import FamilyInstance
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.tuner import Failure, Tuner, TuningLimits
from sparsesmith_proto.kernel import Candidate, FromFamily, Workload
from sparsesmith_proto.message import Architecture

READERS = 3
AHEAD = 2
"""Workloads that are ready beside the one on the device."""
FIRST_BATCH = 16


@dataclass(frozen=True, eq=False)
class Prepared:
    """A workload whose first programs are being compiled."""

    matrix: Matrix
    structure: Structure
    plan: Plan
    workload: Workload
    search: "FamilySearch"
    first: tuple[Candidate, ...]
    ahead: CompilationsAhead
    prepare_s: float
    """Ranking the grid and writing the first batch: what a user waits for, too. Reading the matrix is not in it."""


class FamilySearch:
    """The product's tuner, with candidates going out and outcomes coming in."""

    def __init__(self, matrix: Matrix, plan: Plan) -> None:
        grid = grid_of(matrix.pattern, plan.operation, plan.element_type, plan.num_dense_cols)
        self._tuner = Tuner(grid, AnalyticCost(), TuningLimits(candidates=plan.limit))
        self._instances: dict[str, FamilyInstance] = {}

    def next_batch(self, size: int) -> tuple[Candidate, ...]:
        """None when the search has ended."""
        batch = self._tuner.next_batch(size)
        candidates = []
        for instance in batch:
            origin = FromFamily(family=instance.family, parameters=dict(instance.parameters))
            candidate_id = f"family-{len(self._instances)}"
            self._instances[candidate_id] = instance
            candidates.append(Candidate(candidate_id=candidate_id, program=instance.program, origin=origin))
        return tuple(candidates)

    def tell(self, candidate: Candidate, result: float | Failure) -> None:
        """What became of a candidate; one that is not the tuner's is nothing to it."""
        if candidate.candidate_id in self._instances:
            self._tuner.tell(self._instances[candidate.candidate_id], result)


def prepared_workloads(
    work: Iterable[tuple[Source, Plan]], compiler: Compiler, architecture: Architecture, compile_limit_s: float
) -> Generator[Prepared, None, None]:
    """In order; whoever takes one leaves its `ahead` when done with it."""
    context = get_context("spawn")
    with ProcessPoolExecutor(READERS, mp_context=context) as readers, ThreadPoolExecutor(1) as ranking:

        def submit(source: Source, plan: Plan) -> Future[Prepared]:
            read = readers.submit(_read, source, plan)
            return ranking.submit(_prepare, read, plan, compiler, architecture, compile_limit_s)

        waiting: deque[Future[Prepared]] = deque()
        try:
            for source, plan in work:
                waiting.append(submit(source, plan))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            ranking.shutdown(cancel_futures=True)
            readers.shutdown(wait=False, cancel_futures=True)


def _read(source: Source, plan: Plan) -> tuple[Matrix, Structure]:
    matrix = source.load()
    _ = matrix.pattern.digest
    return matrix, structure_of(matrix.pattern, np.dtype(plan.element_type).itemsize)


def _prepare(
    read: "Future[tuple[Matrix, Structure]]",
    plan: Plan,
    compiler: Compiler,
    architecture: Architecture,
    compile_limit_s: float,
) -> Prepared:
    matrix, structure = read.result()
    workload = Workload(
        pattern=matrix.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )
    began = time.monotonic()
    search = FamilySearch(matrix, plan)
    first = search.next_batch(FIRST_BATCH)
    prepare_s = time.monotonic() - began
    ahead = CompilationsAhead(compiler, architecture, compile_limit_s)
    ahead.start(first, workload)
    return Prepared(matrix, structure, plan, workload, search, first, ahead, prepare_s)
