"""Bodies in pieces of any size are read as one JSON text is, and what is wrong in a list is named."""

import json
import re
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator.http.index_lists import MAX_TEXT_BYTES, PIECE_BYTES, BodyStream
from sparsesmith.errors import InvalidMatrix, LimitExceeded

MEMBERS = ("row_indices", "col_indices")


def read(
    body: str | bytes, piece_bytes: int = 1 << 16, max_indices: int = 10**6
) -> tuple[str, Mapping[str, np.ndarray]]:
    content = body.encode() if isinstance(body, str) else body
    stream = BodyStream("matrix", MEMBERS, max_indices)
    for start in range(0, len(content), piece_bytes):
        stream.feed(content[start : start + piece_bytes])
    text, lists = stream.finish()
    return text.decode(), lists


def refusal(rows: str, piece_bytes: int = 1 << 16) -> InvalidMatrix:
    with pytest.raises(InvalidMatrix) as refused:
        read(f'{{"matrix": {{"row_indices": {rows}}}}}', piece_bytes)
    return refused.value


@given(
    st.lists(st.integers(-(2**31) + 2, 2**31 - 2)),
    st.lists(st.integers(0, 50)),
    st.text(),
    st.sampled_from([None, 1]),
    st.integers(1, 40),
)
def test_a_body_in_pieces_is_read_as_json_reads_it(
    rows: list[int], cols: list[int], text: str, indent: int | None, piece_bytes: int
) -> None:
    matrix: dict[str, object] = {
        "num_rows": 3,
        "row_indices": rows,
        "col_indices": cols,
        text + "x": [1, {"row_indices": [2]}],
    }
    body = {"program": text, "row_indices": [4], "matrix": matrix, "list": [text, {"matrix": [5]}]}
    remaining, lists = read(json.dumps(body, indent=indent), piece_bytes)
    without: dict[str, object] = {"row_indices": [], "col_indices": []}
    expected = {**body, "matrix": matrix | without}
    assert json.loads(remaining) == expected
    assert {name: array.tolist() for name, array in lists.items()} == {"row_indices": rows, "col_indices": cols}


def test_a_list_of_many_pieces_is_read_whole() -> None:
    indices = np.random.default_rng(0).integers(0, 10**6, PIECE_BYTES)
    _, lists = read(json.dumps({"matrix": {"row_indices": indices.tolist()}}), 10_000)
    assert lists["row_indices"].dtype == np.int32
    assert (lists["row_indices"] == indices).all()


def test_a_name_may_be_escaped() -> None:
    remaining, lists = read('{"m\\u0061trix": {"row\\u005findices": [1, 2]}}')
    assert (json.loads(remaining), lists["row_indices"].tolist()) == ({"matrix": {"row_indices": []}}, [1, 2])


def test_white_space_between_entries_may_be_long() -> None:
    space = " " * (2 * PIECE_BYTES)
    _, lists = read(f'{{"matrix": {{"row_indices": [{space}1,{space}2]}}}}', 5000)
    assert lists["row_indices"].tolist() == [1, 2]


@pytest.mark.parametrize("piece_bytes", [1, 3, 1000])
@pytest.mark.parametrize(
    ("rows", "field", "value"),
    [
        ("[1, 2.5]", "matrix.row_indices[1]", "2.5"),
        ("[1, 2, 1e3]", "matrix.row_indices[2]", "1e3"),
        ('["1"]', "matrix.row_indices[0]", '"1"'),
        ("[0, null]", "matrix.row_indices[1]", "null"),
        ("[[1, 2]]", "matrix.row_indices[0]", "[1, 2]"),
        ("[0, 1 2, 3]", "matrix.row_indices[1]", "1 2"),
        ("[01]", "matrix.row_indices[0]", "01"),
        ("[3, --1]", "matrix.row_indices[1]", "--1"),
        ("[3, 2147483648]", "matrix.row_indices[1]", "2147483648"),
        (f"[3, {10**30}]", "matrix.row_indices[1]", str(10**30)),
        ("[1, 2, ]", "matrix.row_indices[2]", ""),
        ("[1,,2]", "matrix.row_indices[1]", ""),
        ("[,1]", "matrix.row_indices[0]", ""),
    ],
)
def test_what_is_no_index_is_named(rows: str, field: str, value: str, piece_bytes: int) -> None:
    error = refusal(rows, piece_bytes)
    assert error.field == field
    # Of an entry that is cut by the end of a piece, what has come is shown.
    assert value.startswith(error.value or "")
    if piece_bytes == 1000:
        assert (error.value or "") == value


def test_a_list_given_twice_is_refused() -> None:
    with pytest.raises(InvalidMatrix, match=re.escape("matrix.row_indices: given twice")):
        read('{"matrix": {"row_indices": [1], "row_indices": [2]}}')


@pytest.mark.parametrize("rows", ["7", '"[1]"', "null", '{"a": [1]}'])
def test_what_is_no_list_stays_in_the_text(rows: str) -> None:
    body = f'{{"matrix": {{"row_indices": {rows}}}}}'
    assert read(body) == (body, {})


@pytest.mark.parametrize("body", ['{"matrix": {"row_indices": [1, 2', '{"matrix": {"row_indices": [1], "x', "[[{", '"'])
def test_a_body_that_ends_early_is_left_incomplete(body: str) -> None:
    remaining, _ = read(body, 5)
    with pytest.raises(json.JSONDecodeError):
        json.loads(remaining)


def test_a_list_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded) as refused:
        read('{"matrix": {"row_indices": [1, 2, 3, 4]}}', max_indices=3)
    assert (refused.value.field, refused.value.limit) == ("matrix.row_indices", "3")


@pytest.mark.parametrize("body", [b'{"program": "' + b"x" * MAX_TEXT_BYTES, b"[" * (MAX_TEXT_BYTES + 1)])
def test_a_long_body_without_lists_is_refused(body: bytes) -> None:
    with pytest.raises(LimitExceeded):
        read(body)
