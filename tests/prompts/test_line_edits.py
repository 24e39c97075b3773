"""Edits of a program by quoted lines: whatever a change is, what is said of it makes the very child."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.prompts.line_edits import edited, line_edit

PARENT = "head\nfor (;;)\n  a;\n}\nfor (;;)\n  b;\n}"
LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "}"]), min_size=1, max_size=12).map("\n".join)


@given(LINES, LINES)
def test_an_edit_makes_its_child_and_nothing_else(parent: str, child: str) -> None:
    edit = line_edit(parent, child)
    assert (edit is None) == (parent == child)
    assert edit is None or edited(parent, edit) == child


@pytest.mark.parametrize(
    ("child", "edit"),
    [
        (PARENT.replace("  b;", "  c;"), "//@ replace\n  b;\n//@ with\n  c;"),
        (PARENT.replace("  b;\n", ""), "//@ replace\n  b;\n//@ with"),
        (PARENT.replace("  b;", "  b;\n  c;"), "//@ replace\n  b;\n//@ with\n  b;\n  c;"),
        ("first\n" + PARENT, "//@ replace\nhead\n//@ with\nfirst\nhead"),
        (PARENT + "\nlast", "//@ replace\n  b;\n}\n//@ with\n  b;\n}\nlast"),
        (
            PARENT.replace("  a;", "  x;").replace("  b;", "  y;"),
            "//@ replace\n  a;\n//@ with\n  x;\n//@ replace\n  b;\n//@ with\n  y;",
        ),
    ],
)
def test_a_change_is_quoted_with_as_many_lines_before_it_as_say_where(child: str, edit: str) -> None:
    assert line_edit(PARENT, child) == edit
    assert edited(PARENT, edit) == child


def test_a_line_that_stands_twice_is_told_by_what_stands_before_it() -> None:
    child = PARENT[: -len("}")] + "} // end"
    edit = line_edit(PARENT, child)
    assert edit == "//@ replace\n  b;\n}\n//@ with\n  b;\n} // end"
    assert edited(PARENT, edit) == child


@pytest.mark.parametrize("text", ["a whole program", "//@ replace\nno such line\n//@ with\nx", "//@ replace"])
def test_what_cannot_be_applied_stays_as_it_is(text: str) -> None:
    assert edited(PARENT, text) == text


@pytest.mark.parametrize("child", [PARENT, PARENT + "\n//@ with", "//@ replace\n" + PARENT])
def test_what_cannot_be_said_is_none(child: str) -> None:
    assert line_edit(PARENT, child) is None
