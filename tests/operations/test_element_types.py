"""Element types: their ids, NumPy's types, programs with sums of their own, and how far a result may be off."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.elements import ALL_TYPES, ELEMENTS, RESERVED_ELEMENT_IDS, WIDE_TYPES, dtype_of
from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import operation_named
from sparsesmith.operations.product import SparseProduct
from sparsesmith.operations.sums import ROUNDOFF, TOLERANCES
from sparsesmith.operations.texts import check_element_type, element_types_of, programs_for, with_element_type
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType

SHORT_TYPES: tuple[ElementType, ...] = ("float16", "bfloat16")
NUM_COLS = 600
OLD = "//@ format csr\n//@ launch k grid=1 block=32\n  T sum = 0;\n"


def rows_of(*lengths: int) -> Pattern:
    """A row of each length, its columns from the first on."""
    dense = np.array([[column < length for column in range(NUM_COLS)] for length in lengths], float)
    return pattern_from_scipy(scipy.sparse.csr_matrix(dense))


def products(pattern: Pattern, element_type: ElementType, seed: int, sign: str) -> dict[str, npt.NDArray[Any]]:
    """Values and x, of both signs or cancelling but for a thousandth."""
    generator = np.random.default_rng(seed)
    values, x = generator.uniform(-1, 1, pattern.nnz), generator.uniform(-1, 1, NUM_COLS)
    if sign == "cancelling":
        values = np.where(np.arange(pattern.nnz) % 2, -1, 1) * (1 + 1e-3 * values)
        x = 1 + 1e-3 * x
    return {"values": values.astype(dtype_of(element_type)), "x": x.astype(dtype_of(element_type))}


def summed(pattern: Pattern, inputs: dict[str, npt.NDArray[Any]], sums: npt.DTypeLike) -> npt.NDArray[Any]:
    """y of the inputs' type, each row summed one by one in another."""
    found = np.zeros(pattern.num_rows, inputs["x"].dtype)
    terms = inputs["values"].astype(sums) * inputs["x"].astype(sums)[pattern.col_indices]
    for row in range(pattern.num_rows):
        total = np.zeros((), sums)
        for term in terms[pattern.row_offsets[row] : pattern.row_offsets[row + 1]]:
            total = (total + term).astype(sums)
        found[row] = total
    return found


def is_right(pattern: Pattern, inputs: dict[str, npt.NDArray[Any]], element_type: ElementType, y: Any) -> bool:
    expected = operation_named("spmv").expect(pattern, inputs, element_type)["y"]
    return bool((np.abs(y.astype(np.float64) - expected.reference) <= expected.bound).all())


def test_ids_of_element_types_are_those_that_shipped_weights_know() -> None:
    assert {name: element.header_id for name, element in ELEMENTS.items()} == {
        "float32": 0,
        "float64": 1,
        "float16": 2,
        "bfloat16": 3,
    }
    assert max(element.header_id for element in ELEMENTS.values()) < RESERVED_ELEMENT_IDS


@pytest.mark.parametrize("name", ALL_TYPES)
def test_a_type_is_as_wide_in_numpy_as_in_c(name: ElementType) -> None:
    assert (dtype_of(name).name, dtype_of(name).itemsize) == (name, ELEMENTS[name].num_bytes)


@pytest.mark.parametrize("name", SHORT_TYPES)
def test_roundoff_is_half_the_distance_of_neighbours(name: ElementType) -> None:
    one = np.ones(1, dtype_of(name))
    above = (one.view(np.uint16) + 1).astype(np.uint16).view(dtype_of(name))
    assert float(above[0]) - 1 == 2 * ROUNDOFF[name]
    assert TOLERANCES[name] == TOLERANCES["float32"], "sums are those of float32"


@pytest.mark.parametrize("element_type", SHORT_TYPES)
@given(
    seed=st.integers(0, 2**32 - 1),
    sign=st.sampled_from(["both", "cancelling"]),
    lengths=st.lists(st.integers(0, NUM_COLS), min_size=1, max_size=4).filter(any),
)
def test_sums_in_float32_are_accepted_however_long_the_rows(
    element_type: ElementType, seed: int, sign: str, lengths: list[int]
) -> None:
    pattern = rows_of(*lengths)
    inputs = products(pattern, element_type, seed, sign)
    assert is_right(pattern, inputs, element_type, summed(pattern, inputs, np.float32))


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_sums_in_the_type_itself_are_not(element_type: ElementType) -> None:
    pattern = rows_of(*[NUM_COLS] * 8)
    for seed in range(10):
        inputs = products(pattern, element_type, seed, "both")
        assert not is_right(pattern, inputs, element_type, summed(pattern, inputs, dtype_of(element_type)))


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_a_result_two_steps_off_is_refused_and_an_empty_row_must_be_zero(element_type: ElementType) -> None:
    pattern = rows_of(1, 0)
    one = np.ones(NUM_COLS, dtype_of(element_type))
    inputs = {"values": one[:1], "x": one}
    right = np.array([1, 0], dtype_of(element_type))
    assert is_right(pattern, inputs, element_type, right)
    off = np.array([1 + 4 * ROUNDOFF[element_type], 0], dtype_of(element_type))
    assert not is_right(pattern, inputs, element_type, off)
    right[1] = ROUNDOFF[element_type]
    assert not is_right(pattern, inputs, element_type, right)


def test_float16_results_below_the_normal_numbers_may_be_half_a_step_off() -> None:
    pattern = rows_of(1)
    inputs = {"values": np.array([2.0**-13], np.float16), "x": np.full(NUM_COLS, 1.3 * 2.0**-11, np.float16)}
    assert is_right(pattern, inputs, "float16", summed(pattern, inputs, np.float32))


@pytest.mark.parametrize("element_type", SHORT_TYPES)
@pytest.mark.parametrize("name", ["spmv", "spmm"])
def test_programs_of_short_types_sum_in_float32_and_include_their_header(name: str, element_type: ElementType) -> None:
    programs = programs_for(operation_named(name), element_type)
    assert list(programs) == ["plain_csr_vector", "plain_csr_scalar"], "what adds in memory adds in the type itself"
    for text in programs.values():
        assert f"#include <{ELEMENTS[element_type].header}>" in text
        assert "float sum = 0;" in text
        assert parse_program(text, name, element_type).launches


@pytest.mark.parametrize("element_type", WIDE_TYPES)
def test_programs_of_wide_types_read_as_they_are(element_type: ElementType) -> None:
    text = programs_for(operation_named("spmm"), element_type)["plain_csr_scalar"]
    kind = ELEMENTS[element_type].c_type
    assert f"  {kind} sum = 0;\n" in text
    assert "    sum += values[k] * b[(long long)col_indices[k] * num_dense_cols + col];\n" in text
    assert "  c[(long long)row * num_dense_cols + col] = sum;\n" in text


def test_an_operation_whose_program_does_not_say_how_it_sums_is_refused_for_short_types() -> None:
    old = SparseProduct("old", 1, 9, "y = A x", (), operation_named("spmv").operands, {"naive": OLD}, "naive")
    assert element_types_of(old) == WIDE_TYPES
    assert with_element_type(OLD, "float64") == OLD.replace("T", "double")
    with pytest.raises(InvalidOption, match="element_type is float16: old is computed for float32, float64"):
        check_element_type(old, "float16")
