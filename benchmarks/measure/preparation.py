"""Workloads made ready ahead of the GPU: the matrix read or made in another process, its grid of programs ranked, the
first batch in the compilers, while the workload before is on the device."""

import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from benchmarks.matrices.structure import Structure, structure_of
from benchmarks.matrices.suites import Matrix, Source
from benchmarks.tuning.sweep import Plan
from services.evaluator.candidates import Parsed, parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from sparsesmith.elements import ELEMENTS
from sparsesmith.families import FamilyInstance
from sparsesmith.tuning.cost import CostModel
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
    first: tuple[Parsed, ...]
    ahead: CompilationsAhead
    prepare_s: float
    """Ranking the grid and writing the first batch: what a user waits for, too. Reading the matrix is not in it."""

    def started(self, candidates: Iterable[Candidate]) -> tuple[Parsed, ...]:
        """Read, and given to the compilers."""
        return started(self.ahead, candidates, self.workload)


def started(ahead: CompilationsAhead, candidates: Iterable[Candidate], workload: Workload) -> tuple[Parsed, ...]:
    """Read, and given to the compilers."""
    return ahead.start(parse_candidate(each, workload) for each in candidates)


class FamilySearch:
    """The product's tuner, with candidates going out and outcomes coming in."""

    def __init__(self, matrix: Matrix, plan: Plan, cost: CostModel) -> None:
        grid = grid_of(matrix.pattern, plan.operation, plan.element_type, plan.num_dense_cols)
        self._tuner = Tuner(grid, cost, TuningLimits(candidates=plan.limit))
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


@dataclass(frozen=True, eq=False)
class Workshop:
    """What workloads are prepared with."""

    cost: CostModel
    compiler: Compiler
    architecture: Architecture
    compile_limit_s: float


@dataclass(frozen=True)
class Unprepared:
    """A workload that could not be made ready: a defect of a maker or of a family, which costs no other its turn."""

    name: str
    plan: Plan
    message: str


def prepared_workloads(
    work: Iterable[tuple[Source, Plan]], workshop: Workshop
) -> Generator[Prepared | Unprepared, None, None]:
    """In order; whoever takes one leaves its `ahead` when done with it."""
    context = get_context("spawn")
    with ProcessPoolExecutor(READERS, mp_context=context) as readers, ThreadPoolExecutor(1) as ranking:
        waiting: deque[tuple[Source, Plan, Future[Prepared]]] = deque()
        try:
            for source, plan in work:
                read = readers.submit(_read, source, plan)
                waiting.append((source, plan, ranking.submit(_prepare, read, plan, workshop)))
                if len(waiting) > AHEAD:
                    yield _result(*waiting.popleft())
            while waiting:
                yield _result(*waiting.popleft())
        finally:
            ranking.shutdown(cancel_futures=True)
            readers.shutdown(wait=False, cancel_futures=True)


def _result(source: Source, plan: Plan, prepared: "Future[Prepared]") -> Prepared | Unprepared:
    error = prepared.exception()
    return prepared.result() if error is None else Unprepared(source.name, plan, f"{type(error).__name__}: {error}")


def _read(source: Source, plan: Plan) -> tuple[Matrix, Structure]:
    matrix = source.load()
    _ = matrix.pattern.digest
    return matrix, structure_of(matrix.pattern, ELEMENTS[plan.element_type].num_bytes)


def _prepare(read: "Future[tuple[Matrix, Structure]]", plan: Plan, workshop: Workshop) -> Prepared:
    matrix, structure = read.result()
    workload = Workload(
        pattern=matrix.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )
    began = time.monotonic()
    search = FamilySearch(matrix, plan, workshop.cost)
    first = search.next_batch(FIRST_BATCH)
    prepare_s = time.monotonic() - began
    ahead = CompilationsAhead(workshop.compiler, workshop.architecture, workshop.compile_limit_s)
    return Prepared(matrix, structure, plan, workload, search, started(ahead, first, workload), ahead, prepare_s)
