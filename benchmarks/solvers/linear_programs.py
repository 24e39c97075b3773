"""First-order linear programming: A x and A^T y in turns, by both tuned directions and by cuSPARSE's SpMVOp ALG2.

    python -m benchmarks.solvers.linear_programs [--sizes 1e6,1e7,1e8] [--kinds qap,set_cover,transport,l1_fit] [--iterations 200]
        [--turns 5] [--storage copy|shared] [--seconds S]

Programmes made by formula (`benchmarks.matrices.linear_programs`), float64. The loop is PDHG (Chambolle and Pock 2011) with all vectors on the
device, the same for all; the library has a plan for A and one for an explicit A^T, where it has no plans its best routine
for each. A row says the time of both products alone and of the whole loop, both as captured graphs that are replayed. The result file is written after every
programme and gone on with. Without a GPU the operator and SciPy compute on the host: times that nobody measures.
"""

import argparse
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np
import scipy.sparse

from benchmarks.matrices.linear_programs import KINDS, LinearProgram, linear_program
from benchmarks.report.results import geometric_mean
from benchmarks.solvers.products import Arrays, OperatorProduct, Product, SparseProduct
from benchmarks.solvers.row_files import Row, RowFile
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from services.generator.directions import extra_bytes
from sparsesmith.artifacts.running import running_program, running_routine
from sparsesmith.errors import SparsesmithError
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operations.directions import transposed_problem
from sparsesmith.operator import Operator
from sparsesmith_proto.api import KernelReport, LibraryAnswer
from sparsesmith_proto.kernel import Passed, Workload
from sparsesmith_proto.words import TransposedStorage

PLANNED = "cusparse_spmvop_alg2"

Pair = tuple[Product, Product]
"""A x and A^T y."""


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    end = time.monotonic() + options.seconds
    programmes = [(kind, float(nnz)) for nnz in options.sizes.split(",") for kind in options.kinds.split(",")]
    with tuned_here(options) as tuning:
        settings = {name: getattr(options, name) for name in ("iterations", "turns", "candidates", "storage")}
        file = RowFile("linear_programs", tuning.device, options, settings, _summary)
        timer = Timer(tuning, options)
        work = {f"{kind}-{nnz:.0e}".replace("+0", ""): partial(timer.row_of, kind, nnz) for kind, nnz in programmes}
        file.fill(work, end)


class Timer:
    """One device."""

    def __init__(self, tuning: TunedHere, options: argparse.Namespace) -> None:
        self._tuning = tuning
        self._options = options

    def row_of(self, kind: str, nnz: float) -> Row:
        """Of a programme that is made for it."""
        return self._row(linear_program(kind, nnz))

    def _row(self, programme: LinearProgram) -> Row:
        matrix = programme.matrix
        pattern = pattern_from_scipy(matrix)
        found = {"name": programme.name, "rows": pattern.num_rows, "cols": pattern.num_cols, "nnz": pattern.nnz}
        workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float64")
        forward = Problem(workload, pattern)
        problems = (forward, transposed_problem(forward, self._options.storage))
        try:
            reports = [self._tuning.report(problem) for problem in problems]
        except SparsesmithError as error:
            return {**found, "failed": error.message}
        self._tuning.give_back()
        arrays = Arrays()
        operator = Operator(reports[0], matrix, transposed=reports[1])
        pairs: dict[str, Pair] = {
            "operator": (OperatorProduct(operator, arrays), OperatorProduct(operator.T, arrays)),
            "library": _of_library(matrix, reports, arrays),
        }
        products: dict[str, float] = {}
        loops: dict[str, float] = {}
        objectives: dict[str, float] = {}
        for kind, pair in pairs.items():
            products[kind] = arrays.us_a_step(arrays.repeated(partial(_both, pair)), *self._timed)
            loop = PrimalDual(programme, pair, arrays)
            loops[kind] = arrays.us_a_step(loop.run, *self._timed)
            objectives[kind] = loop.objective
        return {
            **found,
            "answers": [report.answer.kind for report in reports],
            "runs": [_what_runs(report) for report in reports],
            "extra_bytes": extra_bytes(problems, reports),
            "us_of_both_products": products,
            "us_an_iteration": loops,
            "objective": objectives,
            "products_over_library": products["library"] / products["operator"],
            "loop_over_library": loops["library"] / loops["operator"],
        }

    @property
    def _timed(self) -> tuple[int, int]:
        return self._options.iterations, self._options.turns


class PrimalDual:
    """min c x, A x = b, x >= 0 from zero vectors: so many iterations without a test of convergence."""

    def __init__(self, programme: LinearProgram, pair: Pair, arrays: Arrays) -> None:
        self._pair = pair
        self._arrays = arrays
        self._b, self._c = arrays.module.asarray(programme.b), arrays.module.asarray(programme.c)
        self._x = arrays.module.zeros_like(self._c)
        self._step = 0.9 / spectral_norm(programme.matrix)

    @property
    def objective(self) -> float:
        """c x, on the host."""
        return float(self._c @ self._x)

    def run(self, iterations: int) -> None:
        """From zero vectors. On a GPU an iteration is a graph of four launches."""
        iterate = self._iterations
        self._x[...] = 0
        self._pair[1].given[...] = 0
        iterate(iterations)

    @cached_property
    def _iterations(self) -> Callable[[int], None]:
        return self._arrays.repeated(self._iterate)

    def _iterate(self) -> None:
        forward, backward = self._pair
        self._descend(backward.run(), forward.given)
        self._ascend(forward.run(), backward.given)

    def _descend(self, gradient: Any, ahead: Any) -> None:
        if self._arrays.is_on_gpu:
            self._descent(self._c, gradient, self._step, self._x, ahead)
            return
        after = np.maximum(self._x - self._step * (self._c - gradient), 0)
        ahead[...] = 2 * after - self._x
        self._x[...] = after

    def _ascend(self, product: Any, y: Any) -> None:
        if self._arrays.is_on_gpu:
            self._ascent(self._b, product, self._step, y)
            return
        y += self._step * (self._b - product)

    @cached_property
    def _descent(self) -> Any:
        body = "T after = max(x - step * (c - gradient), T(0)); ahead = 2 * after - x; x = after"
        return self._arrays.module.ElementwiseKernel("T c, T gradient, T step", "T x, T ahead", body, "pdhg_descent")

    @cached_property
    def _ascent(self) -> Any:
        body = "y += step * (b - product)"
        return self._arrays.module.ElementwiseKernel("T b, T product, T step", "T y", body, "pdhg_ascent")


def spectral_norm(matrix: scipy.sparse.csr_matrix) -> float:
    """An upper bound of it that is near for matrices without negative entries: sqrt(|A|_1 |A|_inf)."""
    sizes = abs(matrix)
    return float(np.sqrt(sizes.sum(axis=0).max() * sizes.sum(axis=1).max()))


def _both(pair: Pair) -> None:
    for product in pair:
        product.run()


def _of_library(matrix: scipy.sparse.csr_matrix, reports: list[KernelReport], arrays: Arrays) -> Pair:
    """Plans for A and for an explicit A^T; SciPy without a GPU."""
    transpose = scipy.sparse.csr_matrix(matrix.T)
    transpose.sort_indices()
    if not arrays.is_on_gpu:
        return SparseProduct(matrix, arrays), SparseProduct(transpose, arrays)
    routines = arrays.routines
    names = [_routine(report) for report in reports]
    return routines.product(names[0], matrix), routines.product(names[1], transpose)


def _routine(report: KernelReport) -> str:
    """SpMVOp ALG2, else the best that multiplies with a stored matrix as it is."""
    if any(each.routine.endswith("spmvop_alg2") for each in report.baselines.routines):
        return PLANNED
    best = report.baselines.best_on_a_copy() or report.baselines.best_routine()
    return best.routine.replace("cusparse_copy_", "cusparse_")


def _what_runs(report: KernelReport) -> Row:
    """What the operator runs, a kernel or a routine by name, and the times that were measured of both."""
    answer, routine = report.answer, running_routine(report)
    timed = {each.routine: each.timing.median_us for each in report.baselines.routines}
    kernel = answer.closest if isinstance(answer, LibraryAnswer) else answer.best
    return {
        "by": "kernel" if running_program(report) is not None else routine or "default",
        "kernel_us": None
        if kernel is None or not isinstance(kernel.outcome, Passed)
        else kernel.outcome.timing.median_us,
        "routine_us": None if routine is None else timed[routine],
        "default_us": report.baselines.default_routine().timing.median_us,
        "best_us": report.baselines.best_routine().timing.median_us,
    }


def _summary(rows: list[Row]) -> Row:
    measured: list[dict[str, Any]] = [row for row in rows if "failed" not in row]
    if not measured:
        return {"programmes": 0}
    return {
        "programmes": len(measured),
        **{
            name: geometric_mean([row[name] for row in measured])
            for name in ("products_over_library", "loop_over_library")
        },
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1e6,1e7,1e8", help="nonzeros, about")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--storage", choices=get_args(TransposedStorage), default="copy", help="what A^T reads")
    add_tuning(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
