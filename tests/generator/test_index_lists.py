import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator import index_lists
from services.generator.index_lists import parse_index_list
from sparsesmith.errors import InvalidMatrix, LimitExceeded


def parse(text: str, max_indices: int = 1000) -> np.ndarray:
    raw = msgspec.json.decode(text.encode(), type=msgspec.Raw)
    return parse_index_list(raw, "matrix.row_indices", max_indices)


@given(st.lists(st.integers(-(2**31), 2**31)), st.sampled_from([None, 1]))
def test_a_list_of_whole_numbers_is_read_as_json_reads_it(indices: list[int], indent: int | None) -> None:
    assert parse(json.dumps(indices, indent=indent)).tolist() == indices


def test_a_list_longer_than_a_chunk_is_read_whole() -> None:
    indices = np.random.default_rng(0).integers(0, 10**6, 3 * index_lists.CHUNK_BYTES // 7)
    assert (parse(json.dumps(indices.tolist()), indices.size) == indices).all()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("[1, 2.5]", "matrix.row_indices[1]", "2.5"),
        ("[1, 2, 1e3]", "matrix.row_indices[2]", "1e3"),
        ('["1"]', "matrix.row_indices[0]", '"1"'),
        ("[0, null]", "matrix.row_indices[1]", "null"),
        ("[[1, 2]]", "matrix.row_indices[0]", "[1, 2]"),
        ("7", "matrix.row_indices", None),
        ('"[1]"', "matrix.row_indices", None),
    ],
)
def test_what_is_no_whole_number_is_named(text: str, field: str, value: str | None) -> None:
    with pytest.raises(InvalidMatrix) as refused:
        parse(text)
    assert (refused.value.field, refused.value.value) == (field, value)


def test_a_list_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded) as refused:
        parse("[1, 2, 3, 4]", max_indices=3)
    assert refused.value.limit == "3"
