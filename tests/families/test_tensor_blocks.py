"""SpMM on tensor cores: right at every width of vectors, number of warps a row and number of dense columns; proposed
where there are blocks."""

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from services.evaluator.compiling.compiler import Compiler
from sparsesmith.families import FAMILIES, propose
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType
from tests.families.test_families_are_correct import Trial, run_all, scattered

FAMILY = FAMILIES["spmm_bsr_tensor"]
PLAIN: dict[str, ParameterValue] = {
    "vector": 1, "splits": 1, "unroll": 1, "block": 64, "load": "ldg", "registers": "free", "dependency": "full",
}  # fmt: skip


def blocks(num_rows: int, num_cols: int) -> Pattern:
    """Blocks of 16 by 16, cut off where the matrix ends; some block rows are empty, one is full."""
    chosen = sp.random(-(-num_rows // 16), -(-num_cols // 16), 0.3, "lil", random_state=np.random.default_rng(4))
    chosen[1], chosen[2] = 1, 0
    whole = sp.kron(chosen.tocsr(), np.ones((16, 16)), format="csr")
    return pattern_from_scipy(whole[:num_rows, :num_cols])


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        yield compiler


def test_it_is_right_at_every_number_of_dense_columns(compiler: Compiler) -> None:
    pattern = blocks(151, 197)
    cases: list[tuple[ElementType, int, int, int, int]] = [
        ("float16", 8, 1, 1, 64), ("bfloat16", 8, 1, 2, 64), ("float16", 16, 2, 4, 128), ("bfloat16", 24, 1, 4, 256),
        ("bfloat16", 32, 4, 1, 128), ("float16", 128, 8, 2, 64), ("bfloat16", 128, 8, 8, 256),
    ]  # fmt: skip
    tried = []
    for element_type, columns, vector, splits, block in cases:
        choice = PLAIN | {"vector": vector, "splits": splits, "block": block, "unroll": 1 + (vector > 1)}
        text = FAMILY.render(choice, element_type, columns)
        program = parse_program(text, "spmm", element_type)
        tried.append(Trial(FAMILY, (element_type, columns), choice, pattern, text, program))
    run_all(compiler, tried)


def test_it_takes_whole_products_of_dense_columns_and_numbers_of_16_bits_alone() -> None:
    assert FAMILY.accepts(PLAIN, "float16", 8)
    assert not FAMILY.accepts(PLAIN, "float16", 12)
    assert not FAMILY.accepts(PLAIN | {"vector": 2}, "float16", 8)
    assert not FAMILY.accepts(PLAIN | {"splits": 4}, "float16", 8)
    assert not FAMILY.accepts(PLAIN, "float32", 8)


@pytest.mark.parametrize("num_dense_cols", [8, 16, 32, 128])
def test_it_is_among_the_first_where_there_are_blocks_and_not_where_there_are_none(num_dense_cols: int) -> None:
    proposed = propose(blocks(2048, 2048), "spmm", "float16", num_dense_cols, limit=2)
    assert FAMILY.name in [instance.family for instance in proposed]
    elsewhere = prospects_of(work_of(scattered(2048, 2048, 0.05), "float16", num_dense_cols), "spmm", "float16")
    assert all(entry.family is not FAMILY for entry in elsewhere)


def test_it_is_not_proposed_for_columns_that_no_product_covers() -> None:
    prospects = prospects_of(work_of(blocks(512, 512), "float16", 12), "spmm", "float16")
    assert all(entry.family is not FAMILY for entry in prospects)
