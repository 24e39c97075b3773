"""Starting programs at sizes around their own: an entry more or less than a tile, a share, or what a block can sort."""

from collections.abc import Mapping

import pytest

from services.evaluator.checking.correctness import Correct
from sparsesmith.formats.format import ParameterValue
from sparsesmith.operations import operation_named
from sparsesmith_proto.kernel import Rejected
from tests.operations.checked import checked, make_problem

Settings = Mapping[str, ParameterValue]


def assert_right(task: str, program: str, axes: Mapping[str, int], settings: Settings) -> None:
    verdict = checked(make_problem(task, axes=axes), operation_named(task).programs[program], settings)
    assert isinstance(verdict, Correct), verdict


@pytest.mark.parametrize("n", [1, 3, 2047, 2048, 2049, 18 * 2048 + 5], ids=lambda n: f"n{n}")
def test_a_prefix_sum_whose_blocks_wait_for_none_is_right(n: int) -> None:
    """The last has two tiles a block, and a block with none."""
    assert_right("prefix_sum", "alone", {"n": n}, {})


@pytest.mark.parametrize("settings", [{"BLOCK": 128, "ITEMS": 4}, {"BLOCK": 256, "ITEMS": 16}], ids=str)
@pytest.mark.parametrize("n", [1, 512, 4097, 150 * 512 + 3], ids=lambda n: f"n{n}")
def test_a_prefix_sum_in_two_launches_is_right(n: int, settings: Settings) -> None:
    """The last has more tiles than a thread of a block each can add up."""
    assert_right("prefix_sum", "two_launches", {"n": n}, settings)


@pytest.mark.parametrize(
    ("n", "k"),
    [(1, 1), (33, 33), (1025, 1024), (4096, 64), (4097, 2), (4099, 1024), (8200, 1024), (20 * 4096 + 1, 300)],
    ids=lambda size: str(size),
)
def test_the_largest_are_found_in_one_round_and_in_two(n: int, k: int) -> None:
    """Shares of 4096: from 4097 on in two rounds. The largest of 1024 threads hardly tell which 1024 are largest."""
    assert_right("top_k", "two_rounds", {"n": n, "k": k}, {"SHARE": 4096})


def test_more_than_a_block_can_sort_are_refused_with_the_limit() -> None:
    problem = make_problem("top_k", axes={"n": 3000, "k": 1025})
    verdict = checked(problem, operation_named("top_k").programs["two_rounds"])
    assert isinstance(verdict, Rejected)
    assert "launch narrow: grid.x is 0, must be from 1" in verdict.message


@pytest.mark.parametrize("settings", [{"WARPS": 4}, {"WARPS": 16}], ids=str)
@pytest.mark.parametrize("cols", [1, 4, 31, 128, 1000, 1023, 1024, 1025, 1152], ids=lambda cols: f"cols{cols}")
def test_rows_of_a_softmax_that_lie_in_registers_wholly_or_in_part_are_right(cols: int, settings: Settings) -> None:
    """Packs of four where cols is a multiple of it; 1024 entries are what the registers hold."""
    assert_right("softmax", "row_in_registers", {"rows": 5, "cols": cols}, settings)


@pytest.mark.parametrize("cols", [2, 512, 514, 521], ids=lambda cols: f"cols{cols}")
def test_rows_of_a_softmax_of_float64_are_right_in_registers(cols: int) -> None:
    problem = make_problem("softmax", "float64", {"rows": 5, "cols": cols})
    verdict = checked(problem, operation_named("softmax").programs["row_in_registers"])
    assert isinstance(verdict, Correct), verdict


@pytest.mark.parametrize("rows", [16, 8], ids=lambda rows: f"rows{rows}")
def test_tiles_of_a_convolution_that_are_too_large_for_shared_memory_are_read_where_they_lie(rows: int) -> None:
    """139 and 72 kB; x ends within a tile."""
    axes = {"rows": 29, "cols": 37, "kernel_rows": 5, "kernel_cols": 3}
    assert_right("conv2d", "tiles", axes, {"TX": 8, "TY": 8, "BX": 32, "BY": rows})
