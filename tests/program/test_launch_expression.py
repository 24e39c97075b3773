"""Launch expressions agree with Python's arithmetic and accept nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.expression import MAX_CHARACTERS, MAX_DEPTH, Expression, parse_expression

SIZES = {"num_rows": 1000, "nnz": 12345, "num_sms": 132}


def python_value(text: str) -> int:
    """What Python makes of the same text."""

    def ceil_div(numerator: int, divisor: int) -> int:
        return -(-numerator // divisor)

    return int(eval(text, {"__builtins__": {}}, {**SIZES, "ceil_div": ceil_div, "min": min, "max": max}))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    leaf = st.one_of(st.integers(1, 5000).map(str), st.sampled_from(sorted(SIZES)))
    if depth == 0 or draw(st.booleans()):
        return draw(leaf)
    left, right = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    positive = draw(st.one_of(st.integers(1, 300).map(str), st.just("num_sms")))
    space = draw(st.sampled_from(["", " "]))
    return draw(
        st.sampled_from(
            [
                f"{left}{space}+{space}{right}",
                f"{left} - {right}",
                f"{left}*{right}",
                f"({left})//{space}{positive}",
                f"({left}{space})",
                f"ceil_div({left},{space}{positive})",
                f"min({left},{right})",
                f"max({left}, {right}, {positive})",
            ]
        )
    )


@given(expressions())
def test_an_expression_has_the_value_that_python_gives_it(text: str) -> None:
    if len(text) <= MAX_CHARACTERS:
        assert parse_expression(text).evaluate(SIZES) == python_value(text)


@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/(), abcdefmin_", max_size=60)))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except InvalidProgram as refusal:
        assert refusal.field == "launch"
    else:
        assert isinstance(expression, Expression)


@pytest.mark.parametrize(
    "text",
    [
        "", "1 2", "num_rows/2", "2**3", "-1", "1.5", "0x10", "1e3", "(1", "1)", "min(1)", "ceil_div(1,2,3)", "abs(1)",
        "num_rows.real", "num_rows[0]", "__import__('os')", "lambda: 1", "1 if 1 else 2", "²", "١", "1,2", "4294967296",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidProgram):
        parse_expression(text)


def test_names_are_those_that_the_value_depends_on() -> None:
    assert parse_expression("min(ceil_div(nnz,4), num_sms*8)+1").names == {"nnz", "num_sms"}


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidProgram) as refusal:
        parse_expression("width + 1").evaluate(SIZES)
    assert (refusal.value.value, refusal.value.limit) == ("width", "num_rows, nnz, num_sms")


@pytest.mark.parametrize("text", ["nnz // (num_sms - 132)", "ceil_div(nnz, 131 - num_sms)"])
def test_a_divisor_below_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidProgram, match="divides by"):
        parse_expression(text).evaluate(SIZES)


def test_a_single_slash_gets_a_hint() -> None:
    with pytest.raises(InvalidProgram, match="use // to divide"):
        parse_expression("num_rows / 2")


def test_length_and_depth_are_bounded() -> None:
    assert parse_expression("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH).evaluate({}) == 1
    with pytest.raises(InvalidProgram, match="nested deeper"):
        parse_expression("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1))
    with pytest.raises(InvalidProgram, match=f"at most {MAX_CHARACTERS}"):
        parse_expression("1+" * MAX_CHARACTERS + "1")
