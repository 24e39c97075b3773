"""Tokens are what the compiler sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.restrictions.tokens import tokenize


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source).code]


@given(st.one_of(st.text(), st.text(alphabet="ab1'\"\\\n/*#% \tR()<>:?=_.", max_size=60)))
def test_any_text_has_tokens_or_is_refused(source: str) -> None:
    try:
        tokens = tokenize(source)
    except InvalidProgram as refusal:
        assert refusal.message.startswith("line ")
    else:
        assert all(1 <= token.line <= source.count("\n") + 1 for token in tokens.everywhere())


@given(st.lists(st.sampled_from(["a", "12", "1.5e+3f", '"s // \\" t"', "'c'", "<<<", "->", "::", "+", "1'000"])))
def test_tokens_survive_comments_and_splices_between_them(tokens: list[str]) -> None:
    for separator in (" ", "\n", " /* x\n y */ ", " // z\n", " \\\n "):
        assert texts(separator.join(tokens)) == tokens


def test_lines_are_counted_through_comments_and_splices() -> None:
    source = "a /* \n */ b \\\n c\n// d \\\n still a comment\ne"
    assert [(token.text, token.line) for token in tokenize(source).code] == [("a", 1), ("b", 2), ("c", 3), ("e", 6)]


def test_a_spliced_name_is_one_name() -> None:
    assert texts("clo\\\nck64 (") == ["clock64", "("]


def test_preprocessor_lines_stand_apart() -> None:
    source = "int a;\n  # /* x */ define N \\\n  4\nint b;"
    tokens = tokenize(source)
    (line,) = tokens.preprocessor
    assert (line.name, [token.text for token in line.tokens], line.line, line.spliced) == (
        "define",
        ["N", "4"],
        2,
        True,
    )
    assert [token.text for token in tokens.code] == ["int", "a", ";", "int", "b", ";"]


def test_a_hash_behind_a_multi_line_comment_begins_a_directive() -> None:
    assert [line.name for line in tokenize('/* \n */ # include "x"\n').preprocessor] == ["include"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int a;\n??=include", "line 2: trigraphs"),
        ("%:include", "line 1: the digraph %:"),
        ("%:%:", "line 1: the digraph %:"),
        ("a<%", "line 1: the digraph <%"),
        ("\n\na<:1:>", "line 3: the digraph <:"),
        ("a \\ \nb", "line 1: blanks between a backslash"),
        ('R"(x)"', "line 1: raw strings"),
        ('u8R"x(y)x"', "line 1: raw strings"),
        ("a\x00b", "line 1: control characters"),
        ("a\rb", "line 1: control characters"),
        ("a\x0bb", "line 1: control characters"),
        ("\n/* a", "line 2: a comment without an end"),
        ('"a\n"', 'line 1: a stray "'),
        ("\\u0061", "line 1: '\\\\' outside"),
        ("int ä;", "outside comments and strings"),
        ("a @ b", "line 1: a stray @"),
        ("f<::g>()", "the digraph <: (put a blank between the two)"),
    ],
)
def test_disguises_are_refused(source: str, message: str) -> None:
    with pytest.raises(InvalidProgram) as refusal:
        tokenize(source)
    assert message in refusal.value.message


@pytest.mark.parametrize("source", ["a < b > :: c", "x ? y : z", "n % m", "a [ 1 ] - b", "f < g > ( )", '"ü"'])
def test_plain_code_is_no_disguise(source: str) -> None:
    assert texts(source) == source.split()
    assert "".join(texts(source.replace(" ", ""))) == source.replace(" ", "")
