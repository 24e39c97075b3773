"""Values stored smaller are the same values, whatever the format and the pattern."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS, complete_parameters, format_named
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.values.compressed import Compressed, build_layout, compressed, storage_name
from sparsesmith.formats.values.storage import (
    VALUE_STORAGES,
    Constant,
    Dictionary,
    Float32,
    RowDictionary,
    ValueStorage,
    distinct,
    unpacked,
)
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues, fixed_values
from tests.matrix.patterns import make_pattern, parameters_of, patterns

DTYPES = {
    "const int*": np.dtype(np.int32),
    "const unsigned short*": np.dtype(np.uint16),
    "const unsigned char*": np.dtype(np.uint8),
    "const float*": np.dtype(np.float32),
    "const T*": np.dtype(np.float64),
}
every_format = pytest.mark.parametrize("name", FORMATS)


def some_values(data: st.DataObject, pattern: Pattern) -> FixedValues:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return fixed_values(random.integers(-3, 4, pattern.nnz) / 4, "float64")


@every_format
@settings(max_examples=40, deadline=None)
@given(data=st.data(), pattern=patterns(max_extent=20))
def test_unpacking_gives_every_slot_its_value_back(name: str, data: st.DataObject, pattern: Pattern) -> None:
    format_ = format_named(name)
    parameters = data.draw(parameters_of(format_))
    values = some_values(data, pattern)
    storages: list[ValueStorage] = [Dictionary("u8"), Dictionary("u16"), Float32()]
    slots = format_.grid_of_slots
    if slots is not None:
        storages += [RowDictionary("u8"), RowDictionary("u16")]
    storage = data.draw(st.sampled_from(storages))
    packed_format = compressed(format_, storage)
    layout = packed_format.build_with(pattern, parameters, values)
    plain = format_.build(pattern, packed_format.layout_parameters(parameters))
    expected = plain.pack(values.array)
    found = unpacked(storage, layout)
    assert found is not None
    if isinstance(storage, RowDictionary):
        assert slots is not None
        stride = {"num_rows": pattern.num_rows, **plain.sizes}[slots.stride]
        expected = expected.reshape(-1, stride)[:, : pattern.num_rows]
    np.testing.assert_array_equal(found, expected)


@every_format
@settings(max_examples=20, deadline=None)
@given(data=st.data(), pattern=patterns(max_extent=20))
def test_a_compressed_layout_holds_just_the_arguments_of_the_catalogue(
    name: str, data: st.DataObject, pattern: Pattern
) -> None:
    format_ = format_named(name)
    parameters = data.draw(parameters_of(format_))
    for storage in VALUE_STORAGES.values():
        if isinstance(storage, RowDictionary) and FORMATS[name].grid_of_slots is None:
            continue
        ones = fixed_values(np.ones(pattern.nnz), "float64")
        packed_format = compressed(format_, storage)
        layout = packed_format.build_with(pattern, parameters, ones)
        arguments = packed_format.arguments(parameters)
        assert [a.name for a in arguments if a.role == "size"] == list(layout.sizes)
        assert {a.name: DTYPES[a.c_type] for a in arguments if a.role == "index"} == {
            key: array.dtype for key, array in layout.indices.items()
        }
        assert [a.name for a in arguments if a.role == "scratch"] == list(layout.scratch)
        assert all(a.role != "values" for a in arguments)
        scratch_bytes = 8 * sum(layout.scratch.values())
        assert layout.num_bytes(8) == scratch_bytes + sum(array.nbytes for array in layout.indices.values())


def layout_of(
    rows: tuple[str, ...], values: list[float], name: str, storage: str, **given: ParameterValue
) -> dict[str, Any]:
    format_ = compressed(format_named(name), VALUE_STORAGES[storage])
    layout = format_.build_with(
        make_pattern(*rows), complete_parameters(format_, given), fixed_values(np.array(values), "float32")
    )
    return {key: array.tolist() for key, array in layout.indices.items()} | dict(layout.sizes)


def test_equal_rows_share_a_row_of_the_table_in_ascending_order() -> None:
    arrays = layout_of(("xx..", ".xx.", "..xx", "...x"), [2, -1, 2, -1, 2, -1, 2], "dia", "rows code=u8")
    assert (arrays["num_distinct"], arrays["row_codes"]) == (2, [0, 0, 0, 1])
    assert arrays["row_values"] == [2, -1, 2, 0]


def test_a_row_of_a_sliced_format_has_the_same_code() -> None:
    rows, values = ("xx..", ".xx.", "..xx", "...x"), [2.0, -1, 2, -1, 2, -1, 2]
    assert layout_of(rows, values, "dia", "rows code=u8", slice=32) == layout_of(rows, values, "dia", "rows code=u8")


def test_padding_has_a_code_of_its_own() -> None:
    arrays = layout_of(("xx", "x."), [3, 5, 3], "ell", "dictionary code=u8")
    assert arrays["dictionary"] == [0, 3, 5]
    assert (arrays["value_codes"][:2], arrays["value_codes"][32:34]) == ([1, 1], [2, 0])


@pytest.mark.parametrize(
    ("storage", "values", "reason"),
    [
        ("constant", [1.0, 2.0, 1.0], "the values 1.0 and 2.0"),
        ("dictionary code=u8", list(range(300)), "more than 256 distinct values"),
        ("rows code=u8", list(range(300)), "more than 256 distinct rows"),
        ("float32", [1.0, 2.0, 0.1], "0.1) is not a float32 number"),
    ],
)
def test_values_that_do_not_fit_are_named(storage: str, values: list[float], reason: str) -> None:
    name = "ell" if storage.startswith("rows") else "csr"
    format_ = compressed(format_named(name), VALUE_STORAGES[storage])
    pattern = make_pattern(*["x"] * len(values))
    with pytest.raises(InvalidProgram) as refusal:
        format_.build_with(pattern, complete_parameters(format_, {}), fixed_values(np.array(values), "float64"))
    assert reason in refusal.value.message
    assert refusal.value.field == "values"


def test_float32_is_refused_where_that_is_the_element_type() -> None:
    format_ = compressed(format_named("csr"), Float32())
    with pytest.raises(InvalidProgram, match="the element type is float32"):
        format_.build_with(make_pattern("x"), {"index": "i32"}, fixed_values([1.0], "float32"))


def test_rows_go_with_formats_that_have_a_grid_of_slots_only() -> None:
    with pytest.raises(InvalidProgram, match="goes with the formats dia, ell, not with csr"):
        compressed(format_named("csr"), RowDictionary("u8"))


def test_a_compressed_layout_needs_the_values() -> None:
    format_ = Compressed(format_named("csr"), Constant())
    with pytest.raises(InvalidProgram, match="legal only where the request fixes the values"):
        build_layout(format_, {"index": "i32"}, make_pattern("x"), None)
    assert storage_name(format_) == "csr values=constant"


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 12))
def test_distinct_entries_are_ascending_or_too_many(entries: list[int], limit: int) -> None:
    found = distinct(np.array(entries), limit)
    expected = sorted(set(entries))
    assert (None if found is None else found.tolist()) == (expected if len(expected) <= limit else None)


def test_distinct_entries_are_found_across_pieces() -> None:
    entries = np.zeros(3 * 2**18, np.float32)
    entries[[2**18 + 5, -1]] = 7, -2
    found = distinct(entries, 3)
    assert found is not None
    assert found.tolist() == [-2, 0, 7]
