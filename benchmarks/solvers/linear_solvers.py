"""Conjugate gradients, an iteration at a time: by the tuned operator, by cupyx with its CSR, by the library's best routine.

    python -m benchmarks.solvers.linear_solvers [--pack FILE] [--matrices 20] [--nnz 3e6] [--iterations 200] [--turns 5] [--seconds S]

All in float64, all vectors and scalars on the device, the same loop for all. Patterns are those of the pack that are
symmetric (real ones), the others made by formula; values are made by formula, so that the matrix is positive definite:
-1 beside the diagonal, on it one in a million more than they add up to. The result file is written after every matrix and gone on with.
Without a GPU the operator and SciPy compute on the host: times of a machine that nobody measures on.
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import banded, fem_blocks, stencil_2d, stencil_3d
from benchmarks.report.results import geometric_mean
from benchmarks.solvers.products import Arrays, OperatorProduct, Product, Routines, SparseProduct
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
        patterns = dict(_patterns(options))
        for name in file.missing(patterns):
            if time.monotonic() > end:
                return
            file.measure(name, partial(timer.row, name, patterns[name]))


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
            products["routine"] = Routines().product(best, matrix)
        times: dict[str, float] = {}
        residuals: dict[str, float] = {}
        for kind, product in products.items():
            loop = ConjugateGradients(product, arrays, matrix.shape[0])
            times[kind] = arrays.us_a_step(loop.run, self._options.iterations, self._options.turns)
            residuals[kind] = loop.residual(matrix)
        return {
            **found,
            "answer": report.answer.kind,
            "best_routine": best,
            "us_an_iteration": times,
            "residual": residuals,
            "over_csr": times["csr"] / times["operator"],
            "over_best": times["routine"] / times["operator"] if "routine" in times else None,
        }


class ConjugateGradients:
    """A x = b for a b that is drawn once, without a test of convergence: so many iterations from x = 0. Hestenes and
    Stiefel 1952."""

    def __init__(self, product: Product, arrays: Arrays, size: int) -> None:
        self._product = product
        self._module = arrays.module
        self._b = np.random.default_rng(3).standard_normal(size)
        self._right = arrays.module.asarray(self._b)
        self.x: Any = None

    def run(self, iterations: int) -> None:
        p, dot = self._product.given, self._module.dot
        x, r = self._module.zeros_like(self._right), self._right.copy()
        p[...] = r
        square = dot(r, r)
        for _ in range(iterations):
            q = self._product.run()
            step = square / dot(p, q)
            x += step * p
            r -= step * q
            before, square = square, dot(r, r)
            p *= square / before
            p += r
        self.x = x

    def residual(self, matrix: scipy.sparse.csr_matrix) -> float:
        """|b - A x| / |b| of the last run, on the host."""
        x = self.x.get() if hasattr(self.x, "get") else self.x
        return float(np.linalg.norm(self._b - matrix @ x) / np.linalg.norm(self._b))


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
    over_best = [row["over_best"] for row in measured if row["over_best"] is not None]
    return {
        "matrices": len(measured),
        "over_csr": geometric_mean([row["over_csr"] for row in measured]) if measured else None,
        "over_best": geometric_mean(over_best) if over_best else None,
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
