"""Texts of families leave no register unset on any path: else what the compiler assembled is thrown away, and the text
with those registers set is assembled again, which takes as long as all else."""

import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from services.evaluator.compiling.contract.flow.unset import with_registers_set
from services.evaluator.compiling.toolchain import own_toolchain
from services.evaluator.ptx import read_module
from sparsesmith.families import FamilyInstance, propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import Operation
from tests.families.test_families_are_correct import banded

CHOICES = 2
"""Of each family for each pattern."""


def wide() -> Pattern:
    """More columns than 16 bits tell apart, rows of many lengths."""
    random_ = random.Random(0)
    lengths = [1 + 40 * (row % 50 == 0) + row % 7 for row in range(600)]
    rows = [row for row, length in enumerate(lengths) for _ in range(length)]
    cols = [col for length in lengths for col in sorted(random_.sample(range(200_000), length))]
    return pattern_from_indices(600, 200_000, rows, cols)


@pytest.mark.parametrize("pattern", [banded, wide])
@pytest.mark.parametrize(("operation", "columns"), [("spmv", 1), ("spmm", 8)])
def test_no_register_is_left_unset(pattern: Callable[[], Pattern], operation: Operation, columns: int) -> None:
    toolchain, by_family = own_toolchain(), defaultdict[str, list[FamilyInstance]](list)
    for instance in propose(pattern(), operation, "float32", columns, limit=2000):
        by_family[instance.family].append(instance)
    doubtful = []
    for family, instances in by_family.items():
        for instance in random.Random(1).sample(instances, min(CHOICES, len(instances))):
            source = parse_program(instance.program, operation, "float32").source
            module = read_module(toolchain.compiler.compile(source, toolchain.options("compute_90")).ptx)
            if with_registers_set(module)[0] is not module:
                doubtful.append((family, dict(instance.parameters)))
    assert not doubtful
