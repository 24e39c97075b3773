"""What is stopped while it is written: only what the evaluator would refuse."""

import pytest

from services.generator.policy.directive_watch import DirectiveWatch, Forms, directive_block
from sparsesmith.families import propose
from sparsesmith.operations import Problem
from sparsesmith.program.numbers import is_open
from tests.families import golden
from tests.generator.orders import make_workload

PATTERN = golden.PATTERNS["five points"]()
KERNEL = 'extern "C" __global__ void spmv(int num_rows'


def refused(text: str, pattern_name: str = "five points") -> bool:
    """Whether a text, written character by character, is ever stopped."""
    pattern = golden.PATTERNS[pattern_name]()
    watch = DirectiveWatch(Forms(Problem(make_workload(pattern), pattern), 132))
    return any(watch.refuses() for end in range(1, len(text) + 1) if watch.is_due(text[:end]))


def written(*directives: str) -> str:
    return "".join(f"//@ {line}\n" for line in directives) + KERNEL


LAUNCH = "launch spmv grid=num_rows block=64"


@pytest.mark.parametrize("name", ["five points", "random"])
def test_no_program_of_a_family_is_stopped(name: str) -> None:
    pattern = golden.PATTERNS[name]()
    found = propose(pattern, "spmv", "float32", limit=40)
    assert len(found) == 40
    assert not [each.family for each in found if refused(each.program, name)]


def test_a_program_that_leaves_numbers_open_is_not_stopped() -> None:
    text = written(
        "let longest = row_length_max", "tune threads = 64 128", "format ell", "launch spmv grid=longest block=threads"
    )
    assert is_open(text)
    assert not refused(text)


@pytest.mark.parametrize(
    "directives",
    [
        ("format sell slice=banana", LAUNCH),
        ("format unheard_of", LAUNCH),
        ("format csr", "launch spmv grid=num_rows block=2048"),
        ("format csr", "launch spmv grid=num_slices block=64"),
        ("format csr", "format csr", LAUNCH),
        ("let longest = row_length_longest", "format csr", LAUNCH),
        ("format csr", "hurry up", LAUNCH),
    ],
)
def test_illegal_directives_stop_a_sample(directives: tuple[str, ...]) -> None:
    assert refused(written(*directives))


def test_a_format_that_cannot_hold_the_matrix_stops_a_sample() -> None:
    """Its rows have 5 nonzeros: bins up to 3 hold none of these."""
    assert refused(written("format row_bins widths=3", LAUNCH))
    assert not refused(written("format row_bins widths=5", LAUNCH))


def test_a_size_that_the_matrix_has_not_stops_a_sample() -> None:
    assert refused(written("format ell", "require width=4", LAUNCH))
    assert not refused(written("format ell", f"require width={int(PATTERN.row_lengths.max())}", LAUNCH))


def test_it_is_looked_at_once_and_at_the_first_token_behind_the_directives() -> None:
    text = written("format csr", LAUNCH)
    watch = DirectiveWatch(Forms(Problem(make_workload(PATTERN), PATTERN), 132))
    due = [end for end in range(1, len(text) + 1) if watch.is_due(text[:end])]
    assert due == [text.index("extern") + 1]


@pytest.mark.parametrize(
    "text", [KERNEL, written("format csr"), written(LAUNCH), "Here it is:\n" + written("format csr")]
)
def test_what_may_come_further_down_is_not_judged(text: str) -> None:
    assert not refused(text)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("", None),
        ("/", None),
        ("//", None),
        ("//@ format csr", None),
        ("//@ format csr\n", None),
        ("//@ format csr\n\n  /", None),
        ("//@ format csr\n// a", "//@ format csr\n"),
        ("//@ format csr\ne", "//@ format csr\n"),
        ("e", ""),
    ],
)
def test_directives_go_on_until_something_else_is_written(text: str, block: str | None) -> None:
    assert directive_block(text) == block
