"""SpMV from CSR, two threads a row: no axis of the others, neither `load` nor `registers` nor `dependency`."""

from collections.abc import Iterator

from sparsesmith.families.estimates.cost import Prospect, Work
from sparsesmith.families.family import Family
from sparsesmith.families.text.program import Choice, Launch, program
from sparsesmith.formats.format import OneOf

_CUDA = """
int row = (blockIdx.x * $block + threadIdx.x) / 2, half = threadIdx.x % 2;
$T sum = 0;
if (row < num_rows)
  for (int j = row_offsets[row] + half; j < row_offsets[row + 1]; j += 2) sum += $value_at(j) * x[col_indices[j]];
sum += __shfl_xor_sync(0xffffffff, sum, 1);
if (half == 0 && row < num_rows) y[row] = sum;
"""


def _write(choice: Choice) -> str:
    block = choice.integer("block")
    launch = Launch("spmv", f"ceil_div(num_rows,{block // 2})", block, choice.fill(_CUDA), reads_values=True)
    return program(choice, {}, launch)


def _prospects(work: Work) -> Iterator[Prospect]:
    for block in (64, 128):
        yield Prospect(1 + work.statistics.longest / 64, {"block": block})


CSR_HALVES = Family(
    name="csr_halves",
    operation="spmv",
    format="csr",
    strategy="Two threads a row.",
    parameters={"block": OneOf(64, (64, 128))},
    suits=lambda pattern: True,
    write=_write,
    prospects=_prospects,
)

FAMILIES = (CSR_HALVES,)
