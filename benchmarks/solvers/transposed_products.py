"""A^T x: the tuned kernels, from a copy and from A as it is stored, beside the library's best routines for both.

    python -m benchmarks.solvers.transposed_products [--pack FILE] [--matrices 12] [--max-nnz 2e7] [--names A B]
        [--types float32 float64] [--candidates 64] [--seconds S]

Matrices are generated ones and those of the pack's core suite, spread over its sizes; values are drawn. A is tuned, and A^T
twice, as `tune(A, transposed="both")` does with `transposed_storage` copy and shared. The library is asked for its best
routine with op(A) = T and for its best on an explicit transpose. All four are timed in turns, warm and cold, as the
evaluator times programs: the best kernel of each search, also where its answer is the library's routine (a user gets that one
then, and the means `with_fallback` count such a row as 1). `extra_bytes` is what A^T takes beside A's own kernel. The result file is written after every matrix and gone on with. Without a GPU the interpreter
searches and SciPy multiplies on the host: times that nobody measures.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse

from benchmarks.matrices.suites import Source, core_sources, example_sources, generated_sources
from benchmarks.measure.measured import matrix_entries
from benchmarks.report.results import geometric_mean
from benchmarks.solvers.products import Arrays, OperatorProduct, Product, SparseProduct
from benchmarks.solvers.row_files import Row, RowFile
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from benchmarks.solvers.wrong_products import off_by, on_host, words_of
from services.generator.directions import extra_bytes
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.operations.directions import transposed_problem
from sparsesmith.operator import Operator
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer
from sparsesmith_proto.kernel import Evaluation, Passed, Workload
from sparsesmith_proto.message import ElementType
from sparsesmith_proto.words import TransposedStorage

STORAGES: tuple[TransposedStorage, ...] = ("copy", "shared")
COMPARED = (("copy", "of_stored"), ("copy", "of_copy"), ("shared", "of_stored"))
"""Ours over the library's: `of_stored` with op(A) = T, `of_copy` on an explicit transpose."""
LARGEST_ERROR: Mapping[ElementType, float] = {"float32": 1e-4, "float64": 1e-11}
"""Of a result, relative to the largest entry of |A^T| |x|."""

Reports = Mapping[TransposedStorage, KernelReport]


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    end = time.monotonic() + options.seconds
    with tuned_here(options) as tuning:
        settings = {name: getattr(options, name) for name in ("candidates", "turns")}
        file = RowFile("transposed_products", tuning.device, options, settings, _summary)
        timer = Timer(tuning, options)
        work = {
            f"{each.name}-{kind}": partial(timer.row, each, kind)
            for each in _sources(options)
            for kind in options.types
        }
        file.fill(work, end)


class Timer:
    """One device."""

    def __init__(self, tuning: TunedHere, options: argparse.Namespace) -> None:
        self._tuning = tuning
        self._arrays = Arrays()
        self._turns = options.turns

    def row(self, source: Source, element_type: ElementType) -> Row:
        pattern = source.load().pattern
        workload = Workload(pattern=pattern.digest, operation="spmv", element_type=element_type)
        forward = Problem(workload, pattern)
        problems = {storage: transposed_problem(forward, storage) for storage in STORAGES}
        began = time.monotonic()
        plain = self._tuning.report(forward)
        searched = {storage: self._tuning.report(problem) for storage, problem in problems.items()}
        reports = {storage: of_best_kernel(report) for storage, report in searched.items()}
        tuning_s = time.monotonic() - began
        self._tuning.give_back()
        routines = best_routines(reports["shared"])
        products = self._products(pattern, element_type, plain, reports, routines)
        errors = checked(products, routines, _drawn(pattern, element_type), element_type, self._arrays)
        times = self._arrays.in_turns({name: each.run for name, each in products.items()}, self._turns)
        return {
            "rows": pattern.num_rows,
            "cols": pattern.num_cols,
            "nnz": pattern.nnz,
            "element_type": element_type,
            "answers": {name: report.answer.kind for name, report in searched.items()},
            "routines": routines,
            "times": times,
            "errors": errors,
            "extra_bytes": {name: extra_bytes((forward, problems[name]), (plain, reports[name])) for name in STORAGES},
            "tuning_s": tuning_s,
            **{_ratio(*sides): _over(times, *sides) for sides in COMPARED},
        }

    def _products(
        self,
        pattern: Pattern,
        element_type: ElementType,
        plain: KernelReport,
        reports: Reports,
        routines: Mapping[str, str],
    ) -> dict[str, Product]:
        """Ours where a search has found one, and the library's two: without a GPU SciPy's."""
        matrix, arrays = _drawn(pattern, element_type), self._arrays
        products: dict[str, Product] = {}
        if arrays.is_on_gpu:
            for name, routine in routines.items():
                products[name] = arrays.routines.product(routine, matrix, "spmv_t", element_type)
        else:
            products = {
                "of_stored": SparseProduct(matrix.T, arrays),
                "of_copy": SparseProduct(matrix.T.tocsr(), arrays),
            }
        ours = {
            name: OperatorProduct(Operator(plain, matrix, transposed=report).T, arrays)
            for name, report in reports.items()
            if isinstance(report.answer, TunedAnswer)
        }
        return products | ours


def best_routines(report: KernelReport) -> dict[str, str]:
    """The fastest with op(A) = T and the fastest on a copy of A^T, of a report on A^T from A as it is stored."""
    timed = {each.routine: each.timing.median_us for each in report.baselines.routines}
    copies = {name for name in timed if name.startswith("cusparse_copy_")}
    sides = {"of_stored": timed.keys() - copies, "of_copy": copies}
    return {side: min(names, key=timed.__getitem__) for side, names in sides.items() if names}


def of_best_kernel(report: KernelReport) -> KernelReport:
    """With the fastest kernel for the answer, where the library's routine was faster: it is measured all the same."""
    match report.answer:
        case LibraryAnswer(closest=Evaluation(outcome=Passed(timing=timing)) as closest, break_even=repaid):
            best, default = report.baselines.best_routine(), report.baselines.default_routine()
            answer = TunedAnswer(
                best=closest,
                speedup_over_best=best.timing.median_us / timing.median_us,
                speedup_over_default=default.timing.median_us / timing.median_us,
                break_even=repaid,
            )
            return report.model_copy(update={"answer": answer})
        case _:
            return report


def _ratio(ours: str, theirs: str) -> str:
    return f"{ours}_over_{theirs}"


def _over(times: Mapping[str, Row], ours: str, theirs: str) -> float | None:
    """None where a side has none: no kernel passed, or no routine works."""
    return times[theirs]["us"] / times[ours]["us"] if ours in times and theirs in times else None


def _drawn(pattern: Pattern, element_type: ElementType) -> scipy.sparse.csr_matrix:
    values = np.random.default_rng(1).uniform(-1, 1, pattern.nnz)
    return pattern.to_scipy(values.astype(element_type))


def checked(
    products: Mapping[str, Product],
    routines: Mapping[str, str],
    matrix: scipy.sparse.csr_matrix,
    element_type: ElementType,
    arrays: Arrays,
) -> dict[str, float]:
    """Largest errors, with the operands in place for the timing. Raises ArithmeticError for a wrong result, which says
    where and, of `routines`, whose it is."""
    x = np.random.default_rng(2).uniform(-1, 1, matrix.shape[0]).astype(element_type)
    wide = matrix.astype(np.float64)
    expected, sizes = wide.T @ x.astype(np.float64), abs(wide).T @ abs(x).astype(np.float64)
    errors = {}
    for name, product in products.items():
        if hasattr(product.given, "get"):
            product.given.set(x)
        else:
            product.given[...] = x
        arrays.wait()  # Products run on streams of their own, which nothing orders behind or before what is done here.
        result = product.run()
        arrays.wait()
        found = on_host(result)
        errors[name] = off_by(found, expected, sizes)
        if not errors[name] < LARGEST_ERROR[element_type]:
            whose = f"{name} ({routines[name]})" if name in routines else name
            off = f"A^T x is off by {errors[name]:.2g}, at most {LARGEST_ERROR[element_type]}"
            words = words_of(product, result, found.copy(), x, expected, sizes, arrays)
            raise ArithmeticError(f"{whose}: {off}: {words}")
    return errors


def _sources(options: argparse.Namespace) -> list[Source]:
    """Generated ones and the pack's in turns, so many in all, or those named."""
    made: list[Source] = [each for each in generated_sources() if each.nnz <= options.max_nnz]
    packed = [] if options.pack is None else list(_fitting(options.pack, options.max_nnz))
    if options.names:
        known = {each.name: each for each in [*example_sources(), *made, *packed]}
        return [known[name] for name in options.names]
    room = max(options.matrices - len(made), (options.matrices + 1) // 2)
    places = np.linspace(0, len(packed) - 1, min(room, len(packed))).astype(int)
    chosen: list[Source] = [packed[place] for place in places]
    made = made[: options.matrices - len(chosen)]
    shared = min(len(chosen), len(made))
    turns = [each for pair in zip(chosen, made, strict=False) for each in pair]
    return [*turns, *chosen[shared:], *made[shared:]]


def _fitting(pack: Path, max_nnz: float) -> Iterator[Source]:
    nnz = {name: entry.nnz for name, entry in matrix_entries().items()}
    return (each for each in core_sources(pack) if nnz[each.name] <= max_nnz)


def _summary(rows: list[Row]) -> Row:
    measured = [row for row in rows if "failed" not in row]
    if not measured:
        return {"matrices": 0}
    means = {}
    for element_type in sorted({str(row["element_type"]) for row in measured}):
        for name in (_ratio(*sides) for sides in COMPARED):
            ratios = [row[name] for row in measured if row["element_type"] == element_type and row[name] is not None]
            if ratios:
                means[f"{name}_{element_type}"] = geometric_mean(ratios)
                means[f"{name}_{element_type}_with_fallback"] = geometric_mean([max(1.0, each) for each in ratios])
    return {"matrices": len(measured), **means}


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="patterns of real matrices")
    parser.add_argument("--matrices", type=int, default=12)
    parser.add_argument("--max-nnz", type=float, default=2e7)
    parser.add_argument("--names", nargs="+", help="only these: of the examples, generated ones, the pack's")
    parser.add_argument("--types", nargs="+", choices=tuple(LARGEST_ERROR), default=["float32"])
    parser.add_argument("--turns", type=int, default=5, help="without a GPU")
    add_tuning(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
