"""Children of named programs: names stay where the text still comes to what was timed."""

import pytest

from services.trainer.offline.named_edits import named_child
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from tests.families import golden

CIRCUMSTANCES = Circumstances(golden.PATTERNS["five points"](), 1, 132)
NAMED = """//@ let WIDTH = row_length_max
//@ let LANES = 8
//@ let ROWS = 128//LANES
//@ format ell
//@ require width=WIDTH
//@ launch spmv grid=ceil_div(num_rows,ROWS) block=128
// LANES lanes, ROWS rows, WIDTH slots, __ldg
"""


def plain_of(text: str) -> str:
    return bind_numbers(text, {}, CIRCUMSTANCES, "spmv", "float32").text


def child_of(child: str) -> str | None:
    return named_child(NAMED, plain_of(NAMED), child, lambda text: plain_of(text) == child)


def test_names_stay_where_others_words_change() -> None:
    changed = NAMED.replace("__ldg", "__ldcs")
    assert child_of(plain_of(changed)) == changed


@pytest.mark.parametrize(("old", "new"), [("LANES = 8", "LANES = 4"), ("128", "256")])
def test_numbers_behind_names_change_with_the_text(old: str, new: str) -> None:
    changed = NAMED.replace(old, new)
    assert child_of(plain_of(changed)) == changed


def test_a_number_that_no_longer_follows_stands_in_the_place_of_its_name() -> None:
    child = plain_of(NAMED).replace("16 rows", "17 rows")
    assert child_of(child) == NAMED.replace("ROWS rows", "17 rows")


def test_a_child_that_the_names_would_change_has_none() -> None:
    assert child_of(plain_of(NAMED).replace("slots", "slots of WIDTH")) is None
