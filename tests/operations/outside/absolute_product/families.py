"""One family: a group of lanes for each row."""

from collections.abc import Iterator
from string import Template

from sparsesmith.elements import c_type
from sparsesmith.families.estimates.cost import Prospect, Work
from sparsesmith.families.family import Family
from sparsesmith.families.text.program import Choice
from sparsesmith.formats.format import OneOf

_TEXT = Template("""//@ format csr
//@ launch product grid=ceil_div(num_rows*$lanes,128) block=128
extern "C" __global__ void product(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                   const $type* values, const $type* x, $type* y) {
  int row = (blockIdx.x * 128 + threadIdx.x) / $lanes, lane = threadIdx.x % $lanes;
  $type sum = 0;
  if (row < num_rows)
    for (int k = row_offsets[row] + lane; k < row_offsets[row + 1]; k += $lanes)
      sum += (values[k] < 0 ? -values[k] : values[k]) * x[col_indices[k]];
  for (int step = $lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (row < num_rows && lane == 0) y[row] = sum;
}
""")


def _write(choice: Choice) -> str:
    return _TEXT.substitute(lanes=choice.integer("lanes"), type=c_type(choice.element_type))


def _prospects(work: Work) -> Iterator[Prospect]:
    for lanes in (1, 4, 32):
        yield Prospect(1.0 + work.nnz * 1e-6 + abs(lanes - work.nnz / work.rows) * 1e-3, {"lanes": lanes})


FAMILIES = (
    Family(
        name="absolute_lanes",
        operation="absolute_product",
        format="csr",
        strategy="A group of lanes a row.",
        parameters={"lanes": OneOf(4, (1, 4, 32))},
        suits=lambda pattern: True,
        write=_write,
        prospects=_prospects,
    ),
)
