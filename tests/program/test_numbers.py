"""Numbers that a program leaves open: facts that are filled in, knobs that are set, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import (
    MAX_KNOB_VALUES,
    MAX_LETS,
    Bound,
    Settings,
    bind_numbers,
    is_open,
    knobs_of,
    num_settings,
    set_knobs,
    settings_of,
)
from sparsesmith.program.program import parse_program
from tests.families import golden
from tests.program.programs import make_program

PATTERN = golden.of(6, 9, np.array([0, 0, 0, 2, 3, 3]), np.array([0, 4, 8, 1, 2, 3]))
"""Rows of 3, 0, 1, 2, 0 and 0 nonzeros."""


def bind(text: str, settings: Settings | None = None, pattern: Pattern = PATTERN) -> Bound:
    return bind_numbers(text, settings or {}, Circumstances(pattern, 1, 132), "spmv", "float32")


def refused(text: str, settings: Settings | None = None) -> str:
    with pytest.raises(InvalidProgram) as caught:
        bind(text, settings)
    return caught.value.message


def with_lines(*lines: str, body: str = "") -> str:
    return "\n".join([*lines, make_program(body=body)])


def test_a_fact_stands_where_its_name_stood_and_its_line_is_gone() -> None:
    text = with_lines("//@ let LONGEST = row_length_max", body="  int col[LONGEST];\n")
    assert bind(text).text == make_program(body="  int col[3];\n")


def test_a_name_is_a_whole_word_outside_quotes_and_no_member() -> None:
    body = '  int WIDE, v.W, W_, xW; asm("W");  // W\n'
    assert bind(with_lines("//@ let W = nnz", body=body)).text == make_program(
        body='  int WIDE, v.W, W_, xW; asm("W");  // 6\n'
    )


def test_a_name_in_a_directive_is_a_value_never_a_key() -> None:
    text = make_program(
        format_="//@ let block = row_length_max\n//@ format csr", launch="//@ launch spmv grid=block block=32"
    )
    assert "//@ launch spmv grid=3 block=32" in bind(text).text


def test_facts_are_computed_with_and_with_names_before_them() -> None:
    text = with_lines("//@ let A = row_length_max", "//@ let B = max(0,ceil_div(A*nnz,4)-1)", body="  int b = B;\n")
    assert "int b = 4;" in bind(text).text


def test_a_negative_number_cannot_meet_a_minus() -> None:
    assert "int b = 1 -(-8);" in bind(with_lines("//@ let B = 0-bandwidth", body="  int b = 1 -B;\n")).text


def test_a_table_is_a_list_of_its_numbers() -> None:
    text = with_lines("//@ let D = diagonals", body="  constexpr int offsets[] = {D};\n")
    assert "constexpr int offsets[] = {-1, 0, 4, 8};" in bind(text).text


def test_a_table_of_bins_may_be_a_constant_array() -> None:
    lines = ("//@ let LIMITS = cut_widths(1,32,6)", "//@ let ENDS = bin_past_warp")
    text = "\n".join(
        [*lines, make_program(format_="//@ format row_bins widths=LIMITS steps=1", body="  int e[] = {ENDS};\n")]
    )
    bound = bind(text).text
    assert "//@ format row_bins widths=3 steps=1" in bound
    assert "int e[] = {1};" in bound


def test_pick_sets_the_variables_of_the_bin_that_a_warp_lies_in() -> None:
    pattern = golden.with_dense_rows(900, 900, 2, 1, 70)
    text = make_program(
        format_="//@ format row_bins widths=2,128 steps=4 max_lanes=32",
        body="  //@ pick lanes steps = bins[mine]\n  return;\n",
    )
    chosen = bind(text, pattern=pattern).text.split("{\n")[1]
    assert chosen == "  int lanes = 1, steps = 2;\n  if (mine < 1) lanes = 32, steps = 3;\n  return;\n}\n"


def test_a_text_that_leaves_nothing_open_is_left_alone() -> None:
    text = make_program().replace("\n", "\r\n")
    assert bind(text) == Bound(text, text)
    assert not is_open(text)


def test_knobs_are_read_in_order() -> None:
    knobs = knobs_of(with_lines("//@ tune BLOCK = 64 128 256", "//@tune LOAD = __ldg __ldcs 0x1"))
    assert [(knob.name, knob.values, knob.line) for knob in knobs] == [
        ("BLOCK", (64, 128, 256), 1),
        ("LOAD", ("__ldg", "__ldcs", "0x1"), 2),
    ]
    assert num_settings(knobs) == 9
    assert list(settings_of(knobs))[:2] == [{"BLOCK": 64, "LOAD": "__ldg"}, {"BLOCK": 64, "LOAD": "__ldcs"}]


def test_a_knob_has_its_first_value_or_the_one_it_is_set_to() -> None:
    text = "//@ tune B = 64 128\n" + make_program(launch="//@ launch spmv grid=ceil_div(num_rows,B) block=B")
    assert "grid=ceil_div(num_rows,64) block=64" in bind(text).text
    assert "grid=ceil_div(num_rows,128) block=128" in bind(text, {"B": 128}).text
    assert set_knobs(text, {"B": 128}) == bind(text, {"B": 128}).text


def test_a_fact_may_depend_on_a_knob() -> None:
    text = with_lines("//@ tune PARTS = 2 4", "//@ let EACH = ceil_div(row_length_max,PARTS)", body="  int e = EACH;\n")
    assert "int e = 2;" in bind(text).text
    assert "int e = 1;" in bind(text, {"PARTS": 4}).text


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["//@ let W = longest_row"], r"line 1: unknown fact 'longest_row' \(expected: num_rows, num_cols, nnz, "),
        (["//@ let W ="], "line 1: let W: launch expression '': it ends too early"),
        (["//@ let W row_length_max"], r"line 1: let W row_length_max has no = \(expected: let NAME = ...\)"),
        (["//@ let W = nnz//(num_rows-6)"], "line 1: let W: launch expression .* divides by 0"),
        (["//@ let W = nnz*nnz*1000000000"], "line 1: W is 36000000000 .*32-bit integers, at most 2147483647"),
        (["//@ let W = diagonals+1"], "line 1: diagonals is a table, which nothing is computed from"),
        (["//@ let W = num_warps"], "line 1: let W: bins are facts of format row_bins, not of csr"),
        (["//@ let W = cut_widths(4,32)"], r"line 1: cut_widths\(4,32\) does not fit .*\(steps 1..32, max_la"),
        (["//@ let W = nnz", "//@ let W = nnz"], "line 2: W was named in line 1 already"),
        (["//@ tune W = 1 2", "//@ let W = nnz"], "line 2: W was named in line 1 already"),
        (["//@ let W = nnz", "//@ let values = nnz"], "line 2: 'values' cannot be a name"),
        (["//@ let num_cols = nnz"], "line 1: num_cols is an argument of the kernels"),
        (["//@ tune x = 1 2"], "line 1: x is an argument of the kernels"),
        (["//@ let num_sms = nnz"], "line 1: num_sms is an argument of the kernels or a size of launch lines"),
        (["//@ let for = nnz"], "line 1: 'for' cannot be a name"),
        (["//@ let threadIdx = nnz"], "line 1: 'threadIdx' cannot be a name"),
        (["//@ let 2W = nnz"], "line 1: '2W' cannot be a name"),
        (["//@ let " + 65 * "W" + " = nnz"], "cannot be a name .*at most 64 characters"),
        (["//@ tune W ="], "line 1: knob W has 0 values .*1..64"),
        (["//@ tune W = " + " ".join(map(str, range(65)))], "line 1: knob W has 65 values .*1..64"),
        (["//@ tune W = 1 2 1"], "line 1: knob W has 1 twice"),
        (["//@ tune W = 1 -2"], "line 1: '-2' is no value of a knob"),
        ([f"//@ tune W{i} = 1 2" for i in range(7)], "line 7: 7 knobs .*at most 6"),
        ([f"//@ let W{i} = nnz" for i in range(MAX_LETS + 1)], "line 25: 25 let lines .*at most 24"),
        (["//@ pick a = bins[warp]"], "line 1: bins has no column 'a' .*width, lanes, shift"),
        (["//@ pick lanes = bins[warp]"], "line 1: bins are facts of format row_bins, not of csr"),
        (["//@ pick lanes = boxes[warp]"], "line 1: pick .* is malformed .*tables: bins"),
    ],
)  # fmt: skip
def test_what_cannot_be_filled_in_is_refused_with_line_value_and_limit(lines: list[str], message: str) -> None:
    with pytest.raises(InvalidProgram, match=message) as caught:
        bind(with_lines(*lines))
    assert caught.value.field


def test_a_setting_that_no_knob_has_is_refused() -> None:
    assert "no knob B with the value 3 (known: 1, 2)" in refused(with_lines("//@ tune B = 1 2"), {"B": 3})
    assert "no knob C with the value 1 (known: B)" in refused(with_lines("//@ tune B = 1 2"), {"C": 1})
    assert "no knob C with the value 1 (known: none)" in refused(make_program(), {"C": 1})


def test_the_name_of_the_formats_own_argument_cannot_be_used() -> None:
    assert "line 1: width is an argument" in refused("//@ let width = nnz\n" + make_program(format_="//@ format ell"))


def test_lines_of_a_text_with_its_numbers_in_place_count_as_in_the_text_as_written() -> None:
    text = with_lines(
        "//@ let A = nnz", "//@ tune B = 1 2", body="  //@ pick lanes = bins[warp]\n  clock();\n"
    ).replace("//@ format csr", "//@ format row_bins")
    bound = bind(text)
    with pytest.raises(InvalidProgram, match="line 7: clock"):
        parse_program(bound.in_place, "spmv", "float32")
    assert len(bound.in_place.split("\n")) == len(text.split("\n"))


def test_a_program_that_grows_beyond_the_limit_is_refused() -> None:
    pattern = golden.banded(2000, tuple(range(1000)), 4000)
    text = with_lines("//@ let D = diagonals", body="".join(f"  constexpr int d{i}[] = {{D}};\n" for i in range(40)))
    with pytest.raises(InvalidProgram, match="more than 65536 characters with its numbers filled in"):
        bind(text, pattern=pattern)
    with pytest.raises(InvalidProgram, match="line 1: D has 1500 numbers"):
        bind(text, pattern=golden.banded(2000, tuple(range(1500)), 4000))


def test_a_text_that_would_become_gigabytes_is_refused_before_it_does() -> None:
    """Within memory that a test has."""
    pattern = golden.banded(2000, tuple(range(1000)), 4000)
    for body in (" D" * 30_000, " D\n" * 20_000):
        with pytest.raises(InvalidProgram, match="more than 65536 characters"):
            bind(with_lines("//@ let D = diagonals", body=body), pattern=pattern)


@given(st.text(alphabet="/@let un=pick(){}[]\n\t\"'\\nzW09_.,", max_size=120))
def test_no_text_breaks_it(text: str) -> None:
    """It is filled in or refused by name."""
    try:
        bind(text)
    except InvalidProgram as error:
        assert error.message


@given(st.integers(1, 6), st.integers(1, MAX_KNOB_VALUES))
def test_all_settings_are_listed_once(num_knobs: int, num_values: int) -> None:
    lines = [f"//@ tune K{i} = {' '.join(map(str, range(num_values if i == 0 else 2)))}" for i in range(num_knobs)]
    knobs = knobs_of("\n".join(lines))
    listed = [tuple(settings.values()) for settings in settings_of(knobs)]
    assert len(set(listed)) == len(listed) == num_settings(knobs) == num_values * 2 ** (num_knobs - 1)


def test_a_program_of_a_task_leaves_numbers_open_as_well() -> None:
    lines = (
        "//@ tune BLOCK = 128 256",
        "//@ let HALF = ceil_div(n,2)",
        "//@ task sum",
        "//@ launch sum grid=HALF block=BLOCK",
    )
    kernel = 'extern "C" __global__ void sum(int n, const float* x, float* total) { *total = HALF; }'
    bound = bind_numbers(
        "\n".join([*lines, kernel]), {"BLOCK": 256}, Circumstances(None, 1, 132, {"n": 9}), "sum", "float32"
    )
    assert bound.text.splitlines() == [lines[2], "//@ launch sum grid=5 block=256", kernel.replace("HALF", "5")]
