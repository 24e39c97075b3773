"""Conjugate gradients, an iteration at a time: by the tuned operator, by cupyx with its CSR, by the library's best routine.

    python -m benchmarks.solvers.linear_solvers [--pack FILE] [--matrices 20] [--nnz 3e6] [--iterations 200] [--turns 5] [--seconds S]

All in float64, all vectors and scalars on the device, the same loop for all: launched, and as a captured graph that is replayed,
where what a side does can be captured (`over_csr` and `over_best` are of replayed iterations then). Patterns are those of the pack that are
symmetric (real ones), the others made by formula; values are made by formula, so that the matrix is positive definite:
-1 beside the diagonal, on it one in a million more than they add up to. The result file is written after every matrix and gone on with.
Without a GPU the operator and SciPy compute on the host: times of a machine that nobody measures on.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import banded, fem_blocks, stencil_2d, stencil_3d
from benchmarks.report.results import geometric_mean
from benchmarks.solvers.cg_kernels import CgKernels
from benchmarks.solvers.products import Arrays, OperatorProduct, Product, SparseProduct
from benchmarks.solvers.row_files import Row, RowFile
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from sparsesmith.errors import SparsesmithError
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operator import Operator
from sparsesmith_proto.kernel import Workload


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    end = time.monotonic() + options.seconds
    with tuned_here(options) as tuning:
        settings = {name: getattr(options, name) for name in ("matrices", "nnz", "iterations", "turns", "candidates")}
        file = RowFile("linear_solvers", tuning.device, options, settings, _summary)
        timer = Timer(tuning, options)
        work = {name: partial(timer.row, name, pattern) for name, pattern in _patterns(options)}
        file.fill(work, end)


class Timer:
    """One device."""

    def __init__(self, tuning: TunedHere, options: argparse.Namespace) -> None:
        self._tuning = tuning
        self._options = options

    def row(self, name: str, pattern: Pattern) -> Row:
        matrix = positive_definite(pattern)
        found = {"name": name, "rows": pattern.num_rows, "nnz": pattern.nnz}
        try:
            workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float64")
            report = self._tuning.report(Problem(workload, pattern))
        except SparsesmithError as error:
            return {**found, "failed": error.message}
        self._tuning.give_back()
        best, arrays = report.baselines.best_routine().routine, Arrays()
        products: dict[str, Product] = {
            "operator": OperatorProduct(Operator(report, matrix), arrays),
            "csr": SparseProduct(matrix, arrays),
        }
        if arrays.is_on_gpu:
            products["routine"] = arrays.routines.product(best, matrix)
        launched: dict[str, float] = {}
        replayed: dict[str, float] = {}
        residuals: dict[str, float] = {}
        for kind, product in products.items():
            loop = ConjugateGradients(product, arrays, matrix.shape[0])
            launched[kind] = arrays.us_a_step(loop.run, self._options.iterations, self._options.turns)
            if loop.capture():
                replayed[kind] = arrays.us_a_step(loop.replay, self._options.iterations, self._options.turns)
            residuals[kind] = loop.residual(matrix)
        return {
            **found,
            "answer": report.answer.kind,
            "best_routine": best,
            "us_an_iteration": launched,
            "us_an_iteration_replayed": replayed,
            "residual": residuals,
            **{f"launched_{name}": ratio for name, ratio in _ratios(launched).items()},
            **_ratios(replayed or launched),
        }


def _ratios(times: Mapping[str, float]) -> Row:
    """Over cupyx's CSR and over the best routine; None of what has no time."""
    ours = times.get("operator")
    return {
        name: times[side] / ours if ours is not None and side in times else None
        for name, side in (("over_csr", "csr"), ("over_best", "routine"))
    }


class ConjugateGradients:
    """A x = b for a b that is drawn once, without a test of convergence: so many iterations from x = 0. Hestenes and
    Stiefel 1952. An iteration waits for nothing, so that it may be captured: on a GPU the product and three launches."""

    def __init__(self, product: Product, arrays: Arrays, size: int) -> None:
        self._product = product
        self._arrays = arrays
        self._b = np.random.default_rng(3).standard_normal(size)
        self._right = arrays.module.asarray(self._b)
        self._x, self._r = (arrays.module.zeros_like(self._right) for _ in range(2))
        self._square = 0.0
        """r r, on the host."""
        self._held: Any = None
        self._graph: Callable[[], None] | None = None

    def run(self, iterations: int) -> None:
        """Launch after launch."""
        self._start()
        for _ in range(iterations):
            self._iterate()

    def capture(self) -> bool:
        """Makes a graph of an iteration. False where something in it cannot be captured."""
        self._graph = self._arrays.captured(self._iterate)
        return self._graph is not None

    def replay(self, iterations: int) -> None:
        """The captured iteration so many times."""
        assert self._graph is not None, "capture() comes first"
        with self._arrays.routines.stream:
            self._start()
            for _ in range(iterations):
                self._graph()

    def residual(self, matrix: scipy.sparse.csr_matrix) -> float:
        """|b - A x| / |b| of the last run, on the host."""
        x = self._x.get() if hasattr(self._x, "get") else self._x
        return float(np.linalg.norm(self._b - matrix @ x) / np.linalg.norm(self._b))

    def _start(self) -> None:
        self._x[...] = 0
        self._r[...] = self._right
        self._product.given[...] = self._right
        square = self._arrays.module.dot(self._r, self._r)
        if self._arrays.is_on_gpu:
            self._kernels.start(square)
        else:
            self._square = square

    def _iterate(self) -> None:
        p, q, x, r = self._product.given, self._product.run(), self._x, self._r
        if self._arrays.is_on_gpu:
            self._kernels.step(p, q, x, r)
            self._held = q  # A graph goes on writing there.
            return
        step = self._square / np.dot(p, q)
        x += step * p
        r -= step * q
        before, self._square = self._square, np.dot(r, r)
        p *= self._square / before
        p += r

    @cached_property
    def _kernels(self) -> CgKernels:
        return CgKernels(self._arrays.module, self._b.size)


def positive_definite(pattern: Pattern) -> scipy.sparse.csr_matrix:
    """On a symmetric pattern with a full diagonal."""
    rows = pattern.row_indices()
    is_diagonal = rows == pattern.col_indices
    return pattern.to_scipy(np.where(is_diagonal, pattern.row_lengths[rows] - 1 + 1e-6, -1.0))


def _patterns(options: argparse.Namespace) -> Iterator[tuple[str, Pattern]]:
    """Real ones first, then made ones, so many in all."""
    made = dict(_made(options.nnz))
    room, names = max(0, options.matrices - len(made)), 0
    packed: Iterable[tuple[str, Pattern]] = () if options.pack is None else read_pack(options.pack)
    for name, pattern in packed:
        if names < room and pattern.num_rows == pattern.num_cols and pattern.nnz <= options.max_nnz:
            whole = pattern_from_scipy(pattern.to_scipy(np.ones(pattern.nnz)) + scipy.sparse.identity(pattern.num_rows))
            if whole.transposed[0].digest == whole.digest:
                names += 1
                yield name, whole
    yield from list(made.items())[: options.matrices]


def _made(nnz: float) -> Iterator[tuple[str, Pattern]]:
    """Of three sizes each, down from `nnz`."""
    for share in (1, 1 / 4, 1 / 16):
        part = nnz * share
        tag = f"{part:.0e}".replace("+0", "")
        yield f"stencil2d5-{tag}", stencil_2d(max(4, int((part / 5) ** 0.5)), 5)
        yield f"stencil3d7-{tag}", stencil_3d(max(3, int((part / 7) ** (1 / 3))), 7)
        yield f"fem3-{tag}", fem_blocks(max(3, int((part / 63) ** 0.5)), 3)
        yield f"banded-{tag}", banded(max(20, int(part / 9)), 4)


def _summary(rows: list[Row]) -> Row:
    measured = [row for row in rows if "failed" not in row]
    names = ("over_csr", "over_best", "launched_over_csr", "launched_over_best")
    ratios = {name: [row[name] for row in measured if row[name] is not None] for name in names}
    return {
        "matrices": len(measured),
        **{name: geometric_mean(each) if each else None for name, each in ratios.items()},
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="patterns of real matrices")
    parser.add_argument("--matrices", type=int, default=20)
    parser.add_argument("--nnz", type=float, default=3e6, help="of the largest that are made")
    parser.add_argument("--max-nnz", type=float, default=1e8, help="of the pack's")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    add_tuning(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
