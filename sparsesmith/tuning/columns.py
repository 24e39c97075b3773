"""What a learned cost model sees of a prospect: columns by name, one row a prospect."""

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from sparsesmith.families import FAMILIES
from sparsesmith.families.estimates.cost import NUM_SMS, RESIDENT_THREADS, Work
from sparsesmith.matrix.features import FEATURE_NAMES, structural_features
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.tuning.grid import FloatArray, Grid, scaled

MISSING = float("nan")

Words = Mapping[str, int]
"""Numbers of families and of words that parameters take, `parameter=word`; a word that is new has none."""


def all_words() -> dict[str, int]:
    """Every family and every word of their parameters as of now, numbered."""
    words = {f"family={name}": number for number, name in enumerate(FAMILIES)}
    by_parameter: dict[str, dict[str, int]] = {}
    for family in FAMILIES.values():
        for name, spec in family.parameters.items():
            for value in getattr(spec, "values", ()):
                if isinstance(value, str):
                    numbers = by_parameter.setdefault(name, {})
                    words[f"{name}={value}"] = numbers.setdefault(value, len(numbers))
    return words


def columns_of(grid: Grid, words: Words, among: Grid | None = None) -> dict[str, FloatArray]:
    """Every column, each of shape [prospects]; what a prospect does not have is NaN.

    `among`: all prospects of the workload, where the grid is a part of them.
    """
    count = len(grid.prospects)
    columns = {name: np.full(count, value) for name, value in _of_workload(grid).items()}
    families = [words.get(f"family={name}", MISSING) for name in grid.families]
    columns["family"] = np.array(families, np.float64)
    estimates = np.log(grid.estimates())
    least = _least_of_families(grid if among is None else among)
    columns["log_estimate"] = estimates
    columns["log_estimate_over_best"] = estimates - min(least.values())
    columns["log_estimate_over_family"] = estimates - np.array([least[name] for name in grid.families])
    parameters = _of_parameters(grid, words)
    columns |= {f"parameter_{name}": values for name, values in parameters.items()}
    columns |= _derived(grid, parameters)
    return columns


def matrix_of(columns: Mapping[str, FloatArray], names: list[str]) -> FloatArray:
    """Columns in an order, shape [prospects, names]; NaN where a column is not there."""
    matrix = np.full((len(columns["family"]), len(names)), MISSING)
    for place, name in enumerate(names):
        if name in columns:
            matrix[:, place] = columns[name]
    return matrix


_FEATURES: WeakKeyDictionary[Pattern, dict[int, npt.NDArray[np.float32]]] = WeakKeyDictionary()
"""Of patterns that are alive, by windows of the sample: one pattern may be tuned for several operations."""


def _features(pattern: Pattern, num_windows: int) -> npt.NDArray[np.float32]:
    known = _FEATURES.setdefault(pattern, {})
    if num_windows not in known:
        known[num_windows] = structural_features(pattern, num_windows)
    return known[num_windows]


def _of_workload(grid: Grid) -> dict[str, float]:
    statistics = grid.work.statistics
    features = _features(statistics.pattern, statistics.num_windows)
    return {
        **dict(zip(FEATURE_NAMES, map(float, features), strict=True)),
        "spmm": float(grid.operation == "spmm"),
        "element_bytes": float(grid.work.element_bytes),
        "log_dense_cols": float(np.log2(grid.work.num_dense_cols)),
    }


def _least_of_families(grid: Grid) -> dict[str, float]:
    """The least log estimate of each family."""
    least: dict[str, float] = {}
    for name, estimate in zip(grid.families, np.log(grid.estimates()).tolist(), strict=True):
        least[name] = min(estimate, least.get(name, np.inf))
    return least


def _of_parameters(grid: Grid, words: Words) -> dict[str, FloatArray]:
    """Numbers on a scale of doublings, words by their number."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for row, prospect in enumerate(grid.prospects):
        for name, value in prospect.parameters.items():
            rows, numbers = found.setdefault(name, ([], []))
            rows.append(row)
            numbers.append(words.get(f"{name}={value}", MISSING) if isinstance(value, str) else scaled(name, value))
    columns = {}
    for name, (rows, numbers) in found.items():
        columns[name] = np.full(len(grid.prospects), MISSING)
        columns[name][rows] = numbers
    return columns


def _derived(grid: Grid, parameters: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Sizes that parameters and pattern make together, on a scale of doublings."""
    work = grid.work
    count = len(grid.prospects)

    def of(name: str, default: float = MISSING) -> FloatArray:
        values = parameters.get(name, np.full(count, MISSING))
        return np.where(np.isnan(values), default, values)

    mean, longest = np.log2(work.statistics.mean), np.log2(work.statistics.longest)
    rows, nnz = np.log2(work.rows), np.log2(work.nnz)
    width = of("lanes") + of("unroll", 0.0)
    staged = of("block") + of("unroll", 0.0)
    tile = of("lanes") + of("vector", 0.0) + of("chunks", 0.0)
    return {
        "row_over_width": mean - width,
        "longest_row_over_width": longest - width,
        "threads_over_device": rows + of("lanes", 0.0) - np.log2(RESIDENT_THREADS),
        "blocks_over_sms": rows + of("lanes", 0.0) - of("block") - np.log2(NUM_SMS),
        "nonzeros_over_stage": nnz - staged - np.log2(NUM_SMS),
        "segments_over_sms": nnz - of("items") - np.log2(NUM_SMS),
        "row_blocks_over_sms": nnz - of("nnz_per_block") - np.log2(NUM_SMS),
        "row_over_block": mean - of("block"),
        "dense_cols_over_tile": np.log2(work.num_dense_cols) - tile,
        "sell_padding": _cached(grid, ("slice", "sigma"), work.statistics.sell_padding),
        "block_fill": _cached(grid, ("block_rows", "block_cols"), work.statistics.block_fill),
        "operand_bytes": np.full(count, np.log2(_operand_bytes(work))),
    }


def _operand_bytes(work: Work) -> float:
    return work.csr_bytes() + work.vector_bytes


def _cached(grid: Grid, names: tuple[str, str], statistic: Callable[[int, int], float]) -> FloatArray:
    """A statistic of two parameters for the prospects that have them."""
    column = np.full(len(grid.prospects), MISSING)
    for row, prospect in enumerate(grid.prospects):
        first, second = (prospect.parameters.get(name) for name in names)
        if isinstance(first, int) and isinstance(second, int):
            column[row] = statistic(first, second)
    return column
