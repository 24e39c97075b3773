"""What holds for every format and every pattern."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.formats import FORMATS, Format
from sparsesmith.matrix.pattern import Pattern
from tests.formats.walks import multiply
from tests.matrix.patterns import Mask, mask_of, parameters_of, pattern_of, patterns

every_format = pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
DTYPES = {"const int*": np.int32, "const unsigned short*": np.uint16, "const unsigned char*": np.uint8}


@every_format
@settings(max_examples=60, deadline=None)
@given(data=st.data(), pattern=patterns())
def test_restoring_a_layout_gives_the_pattern_back(format_: Format, data: st.DataObject, pattern: Pattern) -> None:
    parameters = data.draw(parameters_of(format_))
    layout = format_.build(pattern, parameters)
    restored = format_.restore(layout, parameters, pattern.num_rows, pattern.num_cols)
    assert restored.digest == pattern.digest


@every_format
@settings(max_examples=60, deadline=None)
@given(data=st.data(), pattern=patterns(max_extent=20))
def test_walking_a_layout_as_documented_multiplies_by_any_values(
    format_: Format, data: st.DataObject, pattern: Pattern
) -> None:
    parameters = data.draw(parameters_of(format_))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Whole numbers: sums are exact in any order.
    values = random.integers(-1000, 1000, pattern.nnz).astype(np.float64)
    x = random.integers(-1000, 1000, pattern.num_cols).astype(np.float64)
    layout = format_.build(pattern, parameters)
    product = multiply(pattern, layout, format_.name, parameters, values, x)
    np.testing.assert_array_equal(product, pattern.to_scipy(values) @ x)


@every_format
@settings(max_examples=30, deadline=None)
@given(data=st.data(), pattern=patterns())
def test_a_layout_holds_just_the_arguments_of_the_catalogue(
    format_: Format, data: st.DataObject, pattern: Pattern
) -> None:
    parameters = data.draw(parameters_of(format_))
    layout = format_.build(pattern, parameters)
    arguments = format_.arguments(parameters)
    assert [a.name for a in arguments if a.role == "size"] == list(layout.sizes)
    assert {a.name: DTYPES[a.c_type] for a in arguments if a.role == "index"} == {
        name: array.dtype for name, array in layout.indices.items()
    }
    assert [a.name for a in arguments if a.role == "scratch"] == list(layout.scratch)
    assert [a.name for a in arguments if a.role == "values"] == ["values"]
    assert all(array.ndim == 1 and array.flags.c_contiguous for array in layout.indices.values())


@every_format
@settings(max_examples=30, deadline=None)
@given(data=st.data(), pattern=patterns())
def test_packing_stores_every_value_once_and_zeros_elsewhere(
    format_: Format, data: st.DataObject, pattern: Pattern
) -> None:
    layout = format_.build(pattern, data.draw(parameters_of(format_)))
    values = np.arange(1, pattern.nnz + 1, dtype=np.float32)
    packed = layout.pack(values)
    assert (packed.size, packed.dtype) == (layout.num_slots, np.dtype(np.float32))
    np.testing.assert_array_equal(np.sort(packed[packed != 0]), values)


@every_format
def test_building_leaves_the_pattern_as_it_was(format_: Format) -> None:
    mask = np.random.default_rng(1).random((50, 60)) < 0.2
    pattern = read_only_pattern(mask)
    parameters = {name: spec.default for name, spec in format_.parameters.items()}
    layout = format_.build(pattern, parameters)
    format_.restore(layout, parameters, 50, 60)
    np.testing.assert_array_equal(mask_of(pattern), mask)


def read_only_pattern(mask: Mask) -> Pattern:
    pattern = pattern_of(mask)
    pattern.col_indices.flags.writeable = False
    pattern.row_offsets.flags.writeable = False
    return pattern


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_count_indices_slots_and_scratch(name: str) -> None:
    format_ = FORMATS[name]
    pattern = read_only_pattern(np.eye(64, dtype=bool))
    layout = format_.build(pattern, {key: spec.default for key, spec in format_.parameters.items()})
    index_bytes = sum(array.nbytes for array in layout.indices.values())
    scratch = sum(layout.scratch.values())
    assert layout.num_bytes(8) == index_bytes + 8 * (layout.num_slots + scratch)
    assert layout.num_bytes(4, num_dense_cols=16) == index_bytes + 4 * (layout.num_slots + 16 * scratch)
