"""Families for scattered columns at sizes where panels, positions beyond 15 bits, cut rows and hubs all occur."""

from collections.abc import Iterator

import numpy as np
import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import load_module
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.program import parse_program
from tests.families.test_families_are_correct import Choice, run

EXTENT = 70_000


def power_law(nnz: int = 300_000) -> Pattern:
    """Popular columns, long rows and many empty ones."""
    generator = np.random.default_rng(3)
    rows = (generator.pareto(0.9, nnz) * 500).astype(np.int64) % EXTENT
    ranks = np.minimum(generator.pareto(1.1, nnz) * EXTENT / 500, EXTENT - 1).astype(np.int64)
    return pattern_from_indices(EXTENT, EXTENT, rows, generator.permutation(EXTENT)[ranks])


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=1, timeout_s=120) as compiler:
        yield compiler


CASES: list[tuple[str, Choice, str]] = [
    ("panels", {}, "bins=5"),
    ("panels", {"panel_cols": 8192, "rounds": 2}, "bins=4"),
    ("panels", {"panel_cols": 49152, "lanes": 4, "unroll": 4}, "bins=7"),
    ("hubs", {}, ""),
    ("hubs", {"hub_cols": 4096, "items": 4, "block": 512}, ""),
]


@pytest.mark.parametrize(("family", "changes", "bins"), CASES)
def test_scattered_columns_are_multiplied_right_at_size(
    compiler: Compiler, family: str, changes: Choice, bins: str
) -> None:
    pattern = power_law()
    choice = {name: spec.default for name, spec in FAMILIES[family].parameters.items()} | changes
    text = FAMILIES[family].render(choice, "float32").replace("bins=792", bins)
    program = parse_program(text, "spmv", "float32")
    compiled = compiler.compile(program.source, "sm_90")
    assert isinstance(compiled, Compiled), compiled.log
    layout = program.format.build(pattern, program.parameters)
    run(program, load_module(compiled.ptx), layout, pattern, ("float32", 1))
