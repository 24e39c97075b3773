"""Inputs and references that kernels are checked with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.checking.draws import FULL_CHECK, choose_draws, draw, kinds_of, most_draws, system_generator
from services.evaluator.device import Draw
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.operations import Problem
from sparsesmith.operations.sums import TOLERANCES, error_bound, product
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType, Operation

ALL_DRAWS = ("mixed", "one_hot", "cancelling", "wide_range", "integers")


def make_pattern(num_rows: int = 60, num_cols: int = 40, density: float = 0.2) -> Pattern:
    return pattern_from_scipy(scipy.sparse.random(num_rows, num_cols, density, random_state=7))


def make_workload(
    pattern: Pattern, operation: Operation = "spmv", element_type: ElementType = "float32", num_dense_cols: int = 1
) -> Workload:
    return Workload(
        pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols
    )


@dataclass(frozen=True)
class Entry:
    """A nonzero as a program comes to it."""

    value: float
    met: float
    """The entry of x."""
    sum_before: float
    largest: float
    """Of the values of its row."""
    is_last: bool


def entries_of(pattern: Pattern, held: Draw, row: int) -> Iterator[Entry]:
    entries = slice(pattern.row_offsets[row], pattern.row_offsets[row + 1])
    values = held.values[entries].astype(np.float64)
    met = held.dense[pattern.col_indices[entries]].astype(np.float64)
    sums = np.cumsum(values * met)
    for place, (value, other) in enumerate(zip(values, met, strict=True)):
        before = sums[place - 1] if place else 0.0
        yield Entry(value, other, before, abs(values).max(), place + 1 == values.size)


@pytest.mark.parametrize("name", ALL_DRAWS)
@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_a_correctly_rounded_result_of_every_draw_is_within_the_bound(name: str, element_type: ElementType) -> None:
    pattern = make_pattern()
    held = draw(name, Problem(make_workload(pattern, element_type=element_type), pattern), system_generator())
    single = pattern.to_scipy(held.values) @ held.dense
    assert held.values.dtype == held.dense.dtype == single.dtype == element_type
    assert np.all(np.abs(single.astype(np.float64) - held.reference) <= held.bound)


@pytest.mark.parametrize("name", ALL_DRAWS)
def test_spmm_draws_have_a_row_major_operand_and_a_reference_of_all_columns(name: str) -> None:
    pattern = make_pattern()
    held = draw(name, Problem(make_workload(pattern, "spmm", "float64", 8), pattern), system_generator())
    assert held.dense.shape == (40, 8)
    assert held.dense.flags.c_contiguous
    assert held.reference.shape == held.bound.shape == held.magnitude.shape == (60, 8)
    np.testing.assert_allclose(held.reference, pattern.to_scipy(held.values).toarray() @ held.dense)


@pytest.mark.parametrize("name", ALL_DRAWS)
@pytest.mark.parametrize("scale", [1e-38, 1e-6, 1, 1e38])
def test_fixed_values_stand_in_every_draw_and_a_rounded_result_is_within_the_bound(name: str, scale: float) -> None:
    pattern = make_pattern()
    fixed = fixed_values(np.random.default_rng(4).uniform(0.1, 1, pattern.nnz) * scale, "float32")
    held = draw(name, Problem(make_workload(pattern), pattern, fixed), system_generator())
    np.testing.assert_array_equal(held.values, fixed.array)
    single = pattern.to_scipy(held.values) @ held.dense
    assert np.all(np.isfinite(single))
    assert np.all(np.abs(single.astype(np.float64) - held.reference) <= held.bound)
    assert np.any(held.bound < 1e-3 * np.abs(held.reference))


def test_one_hot_operands_pick_a_column_that_has_nonzeros() -> None:
    pattern = make_pattern()
    for _ in range(20):
        held = draw("one_hot", Problem(make_workload(pattern), pattern), system_generator())
        assert np.count_nonzero(held.dense) == 1
        assert np.any(held.reference != 0)


def test_cancelling_rows_are_small_beside_their_magnitude() -> None:
    pattern = pattern_from_scipy(scipy.sparse.csr_matrix(np.ones((4, 100))))
    held = draw("cancelling", Problem(make_workload(pattern), pattern), system_generator())
    assert np.all(np.abs(held.reference) < 0.01 * held.magnitude)


def test_wide_range_spans_twelve_decades() -> None:
    pattern = make_pattern(400, 400)
    held = draw("wide_range", Problem(make_workload(pattern), pattern), system_generator())
    decades = np.log10(np.abs(held.values))
    assert decades.min() < -5 and decades.max() > 5


def test_two_draws_are_never_alike() -> None:
    pattern = make_pattern()
    first, second = (draw("uniform", Problem(make_workload(pattern), pattern), system_generator()) for _ in range(2))
    assert not np.any(first.values == second.values)


def test_all_five_draws_are_taken_where_the_device_affords_them() -> None:
    assert choose_draws(1000, 1000 * FULL_CHECK, system_generator()) == ALL_DRAWS


@pytest.mark.parametrize(("n", "expected"), [(2**20, 6), (2**27, 4), (2**28, 2), (2**30, 2)])
def test_of_a_large_task_fewer_draws_are_made_than_there_are_kinds(n: int, expected: int) -> None:
    problem = Problem(Workload(operation="relu", element_type="float32", axes={"n": n}))
    names = choose_draws(1, FULL_CHECK * 2, system_generator(), kinds_of(problem), most_draws(problem))
    assert len(set(names)) == len(names) == expected
    assert names[0] == kinds_of(problem)[0]


@pytest.mark.parametrize(("affordable", "expected"), [(9, 4), (4, 2), (1, 2), (0, 2)])
def test_a_device_that_affords_less_gets_the_mixed_draw_and_others_at_random(affordable: int, expected: int) -> None:
    names = choose_draws(1000, 1000 * affordable, system_generator())
    assert names[0] == "mixed"
    assert len(set(names)) == len(names) == expected


def test_the_bound_grows_with_the_square_root_of_long_rows_only() -> None:
    pattern = pattern_from_scipy(scipy.sparse.csr_matrix(np.triu(np.ones((4096, 4096), np.int8))))
    bound = error_bound(pattern, np.ones(4096), "float32")
    np.testing.assert_allclose(bound[[0, -1024, -1]], [2 * TOLERANCES["float32"], 1e-5, 1e-5])


def test_the_reference_is_summed_in_float64() -> None:
    pattern = pattern_from_scipy(scipy.sparse.csr_matrix(np.ones((1, 3))))
    values = np.array([1, 1e-9, -1], np.float32)
    reference, magnitude = product(pattern, values, np.ones(3, np.float32))
    assert reference[0] == pytest.approx(1e-9, rel=1e-6)
    assert magnitude[0] == pytest.approx(2)


@pytest.mark.parametrize("num_left_out", [1, 16])
def test_products_left_out_of_a_long_row_are_outside_the_bound_of_integers(num_left_out: int) -> None:
    row = pattern_from_scipy(scipy.sparse.csr_array(np.ones((1, 100_000))))
    workload = make_workload(row)
    shortened = slice(0, row.nnz - num_left_out)

    def is_wrong(name: str) -> bool:
        held = draw(name, Problem(workload, row), np.random.default_rng(0))
        result = float(held.values[shortened].astype(np.float64) @ held.dense[shortened])
        return abs(result - float(held.reference[0])) > float(held.bound[0])

    assert is_wrong("integers")
    assert not is_wrong("uniform")


OMISSIONS: dict[str, Callable[[Entry], bool]] = {
    "of tiny values": lambda entry: abs(entry.value) < 2.0**-40,
    "tiny beside the largest of the row": lambda entry: abs(entry.value) < 2.0**-20 * entry.largest,
    "of small entries of x": lambda entry: abs(entry.met) < 2.0**-10,
    "the last of each row": lambda entry: entry.is_last,
    "the last, unless whole": lambda entry: entry.is_last and entry.value != np.rint(entry.value),
}


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("left_out", OMISSIONS)
def test_products_left_out_are_outside_the_bound_of_mixed_inputs(left_out: str, element_type: ElementType) -> None:
    pattern = pattern_from_scipy(scipy.sparse.random(300, 300, 0.05, random_state=7))
    held = draw("mixed", Problem(make_workload(pattern, element_type=element_type), pattern), system_generator())
    assert is_seen(OMISSIONS[left_out], pattern, held)


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("bits", [24, 40, 48])
def test_products_left_out_beside_a_large_sum_are_outside_the_bound_of_a_wide_range(
    bits: int, element_type: ElementType
) -> None:
    pattern = pattern_from_scipy(scipy.sparse.random(300, 300, 0.05, random_state=7))
    problem = Problem(make_workload(pattern, element_type=element_type), pattern)
    held = draw("wide_range", problem, system_generator())
    assert is_seen(lambda entry: abs(entry.value) < 2.0**-bits * abs(entry.sum_before), pattern, held)


def is_seen(left_out: Callable[[Entry], bool], pattern: Pattern, held: Draw) -> bool:
    results = [
        sum(entry.value * entry.met for entry in entries_of(pattern, held, row) if not left_out(entry))
        for row in range(pattern.num_rows)
    ]
    return bool(np.any(abs(results - held.reference) > held.bound))


def test_a_share_of_a_long_row_left_out_is_outside_the_bound_of_rows_that_are_evened_out() -> None:
    rows = pattern_from_scipy(scipy.sparse.csr_array(np.ones((48, 100_000), np.int8)))
    held = draw("mixed", Problem(make_workload(rows), rows), system_generator())
    products = held.values.reshape(48, -1).astype(np.float64) * held.dense.astype(np.float64)
    is_even = np.all(products >= 0, axis=1) & (products.max(axis=1) < held.magnitude / 100)
    assert is_even.any()
    assert np.all(abs(products[is_even, -1000:].sum(axis=1)) > held.bound[is_even])


@pytest.mark.parametrize(("num_products", "exact"), [(1_800_000, True), (6_000_000, False)])
def test_sums_of_integers_are_held_to_exactness_where_single_precision_holds_them(
    num_products: int, exact: bool
) -> None:
    row = pattern_from_scipy(scipy.sparse.csr_array(np.ones((1, num_products), dtype=np.int8)))
    held = draw("integers", Problem(make_workload(row), row), system_generator())
    assert (float(held.bound[0]) == 0.5) == exact
    if exact:
        in_any_order = np.random.default_rng().permutation(held.values * held.dense)
        assert float(np.cumsum(in_any_order, dtype=np.float32)[-1]) == float(held.reference[0])
