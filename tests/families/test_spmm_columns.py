"""SpMM families for numbers of dense columns that no vector divides, and for those that take several tiles."""

from collections.abc import Iterator
from itertools import chain

import pytest

from services.evaluator.compiling.compiler import Compiler
from sparsesmith.families import FAMILIES
from tests.families.test_families_are_correct import Workload, run_all, some_choices, trials

SHARED_ROWS = ("spmm_rows_split", "spmm_ell", "spmm_tiles", "spmm_resident", "spmm_bsr_split")
WORKLOADS: tuple[Workload, ...] = (("float32", 3), ("float32", 7), ("float64", 33), ("float32", 130))


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        yield compiler


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: f"{workload[0]}-{workload[1]}")
@pytest.mark.parametrize("name", SHARED_ROWS)
def test_families_that_share_rows_are_right_for_any_number_of_columns(
    compiler: Compiler, name: str, workload: Workload
) -> None:
    tried = [[*trials(FAMILIES[name], choice, workload)] for choice in some_choices(FAMILIES[name], workload)]
    assert all(tried)
    run_all(compiler, [*chain(*tried)])
