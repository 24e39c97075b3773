"""What docs/operator.md promises of an operator, on a GPU: alpha and beta at the price of reading y, a captured graph that
is replayed a million times with the same bits, SciPy's solvers to ten digits, a product inside JAX's jit and PETSc's solvers.

    python -m benchmarks.solvers.operator_promises [--rows scaled replays solvers jax petsc] [--names A B] [--types float32 float64]
        [--replays 10000] [--side 300] [--candidates 64] [--seconds S]

`scaled`: for each matrix y = A x, y = alpha A x + beta y and, as one does without, y = A x and a kernel that adds, by the
tuned kernel, in turns, warm and cold; `bytes_over_plain` is what has to be moved for the second over what for the first.
`replays`: a graph of 100 products (a kernel tuned with `deterministic`), so many times; where there is no graph, so many calls.
`solvers`: cg, gmres and svds of scipy.sparse.linalg with the operator and with the matrix, on vectors of the host. `jax`: a
call of a compiled function, and a product of a hundred in one, beside BCOO. `petsc`: an iteration of its conjugate gradients by
the operator and by PETSc's own matrix, the vectors on the host (left out where petsc4py is not installed). The result file is written after every row and
gone on with. Without a GPU the interpreter searches and SciPy multiplies on the host: times that nobody measures.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import linalg

from benchmarks.matrices.generated import stencil_2d
from benchmarks.matrices.suites import Source, example_sources, generated_sources
from benchmarks.solvers.linear_solvers import positive_definite
from benchmarks.solvers.products import Arrays
from benchmarks.solvers.row_files import Row, RowFile
from benchmarks.solvers.transposed_products import of_best_kernel
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from sparsesmith.elements import ELEMENTS
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operator import Operator
from sparsesmith_proto.api import TunedAnswer
from sparsesmith_proto.kernel import Passed, Workload
from sparsesmith_proto.message import ElementType

PRODUCTS_A_GRAPH = 100
LOOKS = 10
"""At the bits, spread over the replays."""
ROWS = ("scaled", "replays", "solvers", "jax", "petsc")
PETSC_ITERATIONS = 200
PETSC_LIMIT = 1e-6
"""Relative, of solutions after as many iterations: sums are added in other orders."""
NAMES = ("stencil2d5_1000", "fem3_500", "banded_1000000_8", "uniform_1000000_16", "power_law_1000000")


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    end = time.monotonic() + options.seconds
    with tuned_here(options) as tuning:
        settings = {name: getattr(options, name) for name in ("candidates", "turns", "replays", "side")}
        file = RowFile("operator_promises", tuning.device, options, settings, _summary)
        file.fill(Promises(tuning, options).rows(), end)


class Promises:
    """On one device."""

    def __init__(self, tuning: TunedHere, options: argparse.Namespace) -> None:
        self._tuning = tuning
        self._options = options
        self._arrays = Arrays()

    def rows(self) -> dict[str, Callable[[], Row]]:
        """What is measured, by name; JAX, which takes memory of its own, last."""
        sources: list[Source] = [*example_sources(), *generated_sources()]
        known = {each.name: each for each in sources}
        scaled: dict[str, Callable[[], Row]] = {
            f"scaled-{name}-{kind}": partial(self._scaled, known[name], kind)
            for name in self._options.names
            for kind in self._options.types
        }
        others = {"replays": self._replays, "solvers": self._solvers, "petsc": self._petsc, "jax": self._jax}
        chosen = {name: row for name, row in others.items() if name in self._options.rows}
        return (scaled if "scaled" in self._options.rows else {}) | chosen

    def _scaled(self, source: Source, element_type: ElementType) -> Row:
        pattern = source.load().pattern
        operator = self._operator(pattern, element_type)
        rows, cols = operator.shape
        x, y, before = (self._ones(length, operator) for length in (cols, rows, rows))
        calls: dict[str, Callable[[], Any]] = {
            "plain": lambda: operator.matvec(x, out=y),
            "scaled": lambda: operator.matvec(x, out=before, alpha=2, beta=0.5),
            "then_added": lambda: self._then_added(operator, x, y, before),
        }
        times = self._arrays.in_turns(calls, self._options.turns)
        answer = operator.report.answer
        assert isinstance(answer, TunedAnswer), "its operator was made of a kernel"
        assert isinstance(answer.best.outcome, Passed), "it was the best"
        width = ELEMENTS[element_type].num_bytes
        moved = answer.best.outcome.format_bytes + width * (rows + cols)
        return {
            "rows": rows,
            "nnz": operator.nnz,
            "element_type": element_type,
            "has_scratch": operator.has_scratch,
            "times": times,
            "scaled_over_plain": times["scaled"]["us"] / times["plain"]["us"],
            "bytes_over_plain": (moved + width * rows) / moved,
            "then_added_over_scaled": times["then_added"]["us"] / times["scaled"]["us"],
        }

    def _then_added(self, operator: Operator, x: Any, y: Any, before: Any) -> None:
        operator.matvec(x, out=y)
        if not self._arrays.is_on_gpu:
            before[...] = 2 * y + operator.dtype.type(0.5) * before
            return
        self._adding(y, before)

    @cached_property
    def _adding(self) -> Any:
        """One kernel for before = 2 y + 0.5 before."""
        return self._arrays.module.ElementwiseKernel("T y", "T before", "before = 2 * y + before / 2", "added")

    def _replays(self) -> Row:
        """Raises ArithmeticError where the bits change."""
        operator = self._operator(stencil_2d(self._options.side, 5), "float32", deterministic=True)
        x, y = self._ones(operator.shape[1], operator), self._ones(operator.shape[0], operator)
        x[...] = self._arrays.module.asarray(np.random.default_rng(1).uniform(-1, 1, operator.shape[1]))
        launch, wait = self._hundred(operator, x, y)
        launch()
        wait()
        first = y.copy()
        started = time.perf_counter()
        for _ in range(LOOKS):
            y.fill(np.nan)
            wait()
            for _ in range(self._options.replays // LOOKS):
                launch()
            wait()
            if not bool((y == first).all()):
                raise ArithmeticError("a replayed graph gave other bits than the first time")
        seconds = time.perf_counter() - started
        products = self._options.replays // LOOKS * LOOKS * PRODUCTS_A_GRAPH
        return {
            "nnz": operator.nnz,
            "is_captured": self._arrays.is_on_gpu,
            "products": products,
            "same_bits": True,
            "us_a_product": seconds / products * 1e6,
        }

    def _hundred(self, operator: Operator, x: Any, y: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """What launches a graph of products, and what waits for it."""
        if not self._arrays.is_on_gpu:
            return partial(_repeated, lambda: operator.matvec(x, out=y)), lambda: None
        stream = self._arrays.module.cuda.Stream(non_blocking=True)
        self._arrays.module.cuda.runtime.deviceSynchronize()
        with stream:
            operator.matvec(x, out=y)
            stream.synchronize()
            stream.begin_capture()
            _repeated(lambda: operator.matvec(x, out=y))
            graph = stream.end_capture()
        return lambda: graph.launch(stream), self._arrays.module.cuda.runtime.deviceSynchronize

    def _solvers(self) -> Row:
        pattern = stencil_2d(min(self._options.side, 100), 5)
        rows = pattern.row_indices()
        diagonal = np.random.default_rng(4).uniform(5, 6, pattern.num_rows)  # No two singular values are the same.
        matrix = pattern.to_scipy(np.where(rows == pattern.col_indices, diagonal[rows], -1.0))
        operator = self._operator(pattern, "float64", matrix)
        b = np.random.default_rng(1).standard_normal(matrix.shape[0])
        return {
            "nnz": operator.nnz,
            "on_gpu": self._arrays.is_on_gpu,
            "differences": {name: _difference(solve(operator, b), solve(matrix, b)) for name, solve in SOLVERS.items()},
            "limit": 1e-10,
        }

    def _jax(self) -> Row:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax
        import jax.numpy as jnp
        from jax.experimental.sparse import BCOO

        from sparsesmith.jax import product

        pattern = stencil_2d(self._options.side, 5)
        operator = self._operator(pattern, "float32")
        matrix = operator.to_scipy().astype(np.float32)
        theirs = BCOO.from_scipy_sparse(matrix)
        x = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, matrix.shape[1]), "float32")
        sides: dict[str, Callable[[Any], Any]] = {
            "operator": lambda x: product(operator, x),
            "bcoo": lambda x: theirs @ x,
        }
        found: dict[str, Row] = {}
        for side, multiply in sides.items():
            once, back = jax.jit(multiply), jax.jit(lambda x, multiply=multiply: jax.vjp(multiply, x)[1](x)[0])
            many = jax.jit(partial(_many, jax, multiply))
            scale = abs(matrix) @ np.ones(matrix.shape[1])
            found[side] = {
                "us_a_call": self._us_of_jax(once, x, 1),
                "us_a_call_of_vjp": self._us_of_jax(back, x, 1),
                "us_a_product_of_many": self._us_of_jax(many, x, PRODUCTS_A_GRAPH),
                "error": float(np.abs(np.asarray(once(x)) - matrix @ np.asarray(x)).max() / scale.max()),
                "error_of_vjp": float(np.abs(np.asarray(back(x)) - matrix.T @ np.asarray(x)).max() / scale.max()),
            }
        return {"nnz": operator.nnz, "jax": jax.__version__, "backend": jax.default_backend(), "sides": found}

    def _us_of_jax(self, function: Callable[[Any], Any], x: Any, products: int) -> float:
        """The least of some calls, the device waited for after each."""
        function(x).block_until_ready()
        times = []
        for _ in range(10 * self._options.turns):
            started = time.perf_counter()
            function(x).block_until_ready()
            times.append(time.perf_counter() - started)
        return min(times) / products * 1e6

    def _petsc(self) -> Row:
        """Raises ArithmeticError where the two solutions are not the same to six digits."""
        from petsc4py import PETSc

        from sparsesmith.petsc import matrix as petsc_matrix

        own = positive_definite(stencil_2d(self._options.side, 5))
        operator = self._operator(pattern_from_scipy(own), "float64", own)
        places = own.indptr.astype(PETSc.IntType), own.indices.astype(PETSc.IntType)
        sides = {
            "operator": petsc_matrix(operator),
            "petsc": PETSc.Mat().createAIJ(own.shape, csr=(*places, own.data), comm=PETSc.COMM_SELF),
        }
        b = np.random.default_rng(1).standard_normal(own.shape[0])
        times, found = {}, {}
        for side, products in sides.items():
            times[side], found[side] = self._us_of_petsc(PETSc, products, b)
        apart = _difference(found["operator"], found["petsc"])
        if not apart < PETSC_LIMIT:
            raise ArithmeticError(f"solutions of PETSc's and the operator's products differ by {apart:.2g}")
        return {
            "nnz": operator.nnz,
            "petsc": ".".join(map(str, PETSc.Sys.getVersion())),
            "on_gpu": self._arrays.is_on_gpu,
            "vectors": "host",
            "us_an_iteration": times,
            "apart": apart,
            "limit": PETSC_LIMIT,
        }

    def _us_of_petsc(self, petsc: Any, products: Any, b: Any) -> tuple[float, Any]:
        """Of an iteration, the least of some solutions of so many iterations each, and where they end."""
        solver = petsc.KSP().create(petsc.COMM_SELF)
        solver.setOperators(products)
        solver.setType("cg")
        solver.getPC().setType("jacobi")
        solver.setTolerances(rtol=0, atol=0, divtol=1e300, max_it=PETSC_ITERATIONS)
        right, x = (petsc.Vec().createWithArray(each, comm=petsc.COMM_SELF) for each in (b.copy(), np.zeros_like(b)))
        seconds = []
        for _ in range(1 + self._options.turns):
            x.set(0)
            started = time.perf_counter()
            solver.solve(right, x)
            seconds.append(time.perf_counter() - started)
        return min(seconds) / max(1, solver.getIterationNumber()) * 1e6, x.getArray().copy()

    def _operator(
        self, pattern: Pattern, element_type: ElementType, matrix: Any = None, *, deterministic: bool = False
    ) -> Operator:
        """Of the best kernel that a search finds; of drawn values unless a matrix is given. Raises LookupError."""
        workload = Workload(
            pattern=pattern.digest, operation="spmv", element_type=element_type, deterministic=deterministic
        )
        report = of_best_kernel(self._tuning.report(Problem(workload, pattern)))
        self._tuning.give_back()
        if not isinstance(report.answer, TunedAnswer):
            raise LookupError(f"no kernel passed: {report.answer.reason}")
        values = np.random.default_rng(1).uniform(-1, 1, pattern.nnz).astype(element_type)
        return Operator(report, pattern.to_scipy(values) if matrix is None else matrix)

    def _ones(self, length: int, operator: Operator) -> Any:
        return self._arrays.module.ones(length, operator.dtype)


def _repeated(call: Callable[[], Any]) -> None:
    for _ in range(PRODUCTS_A_GRAPH):
        call()


def _cg(matrix: Any, b: Any) -> Any:
    return linalg.cg(matrix, b, rtol=1e-13, atol=0)[0]


def _gmres(matrix: Any, b: Any) -> Any:
    return linalg.gmres(matrix, b, rtol=1e-13, atol=0, restart=60)[0]


def _svds(matrix: Any, b: Any) -> Any:
    return np.sort(linalg.svds(matrix, k=4, v0=b, return_singular_vectors=False))


SOLVERS: dict[str, Callable[[Any, Any], Any]] = {"cg": _cg, "gmres": _gmres, "svds": _svds}


def _difference(found: Any, expected: Any) -> float:
    """Relative, in the Euclidean norm."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _many(jax: Any, multiply: Callable[[Any], Any], x: Any) -> Any:
    """Products one after the other in one compiled function; halved, so that they stay finite."""
    return jax.lax.fori_loop(0, PRODUCTS_A_GRAPH, lambda _, x: multiply(x) / 2, x)


def _summary(rows: list[Row]) -> Row:
    scaled = [row for row in rows if "scaled_over_plain" in row]
    if not scaled:
        return {}
    return {"largest_scaled_over_bytes": max(row["scaled_over_plain"] / row["bytes_over_plain"] for row in scaled)}


def _rows_here() -> list[str]:
    """All; PETSc, which has no wheels, where it is installed."""
    return [row for row in ROWS if row != "petsc" or find_spec("petsc4py") is not None]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=_rows_here())
    parser.add_argument(
        "--names", nargs="+", default=list(NAMES), help="matrices of `scaled`: generated ones, examples"
    )
    parser.add_argument("--types", nargs="+", choices=("float32", "float64"), default=["float32", "float64"])
    parser.add_argument("--replays", type=int, default=10_000, help="of a graph of 100 products")
    parser.add_argument("--side", type=int, default=300, help="of the square grid of the other rows")
    parser.add_argument("--turns", type=int, default=5)
    add_tuning(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
