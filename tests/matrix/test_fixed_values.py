"""Values that a request fixes."""

import numpy as np
import pytest

from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.matrix.values import fixed_values, values_of_entries


def test_a_digest_tells_values_and_types_apart_and_nothing_else() -> None:
    digest = fixed_values([1, 2, 0], "float32").digest
    assert digest == fixed_values(np.array([1.0, 2.0, -0.0]), "float32").digest
    assert digest == fixed_values(np.array([1, 2, 0], np.int64), "float32").digest
    assert len({digest, fixed_values([1, 2, 0], "float64").digest, fixed_values([2, 1, 0], "float32").digest}) == 3


def test_values_are_rounded_to_the_element_type() -> None:
    assert fixed_values([0.1], "float32").digest == fixed_values(np.array([0.1], np.float32), "float32").digest


@pytest.mark.parametrize("value", [1e39, float("nan"), float("-inf")])
def test_a_value_that_is_not_finite_in_the_type_is_named(value: float) -> None:
    with pytest.raises(InvalidMatrix, match="nonzero 1 ") as caught:
        fixed_values([1.0, value], "float32")
    assert (caught.value.field, caught.value.limit) == ("values", "finite in float32")


def test_entries_are_ordered_as_the_pattern_is_and_duplicates_added_up_even_to_zero() -> None:
    rows, cols = np.array([1, 0, 1, 0], np.int32), np.array([0, 1, 0, 0], np.int32)
    pattern = pattern_from_indices(2, 2, rows, cols)
    values = values_of_entries(pattern, rows, cols, np.array([2.0, 5.0, -2.0, 3.0]))
    assert values.tolist() == [3.0, 5.0, 0.0]


def test_one_value_is_needed_for_each_entry() -> None:
    rows = np.array([0, 1], np.int32)
    with pytest.raises(InvalidMatrix, match="values has 1 entries, row_indices has 2"):
        values_of_entries(pattern_from_indices(2, 2, rows, rows), rows, rows, np.ones(1))
