"""One family: a group of lanes for each row."""

from collections.abc import Iterator
from string import Template

from sparsesmith.families.estimates.cost import Prospect
from sparsesmith.families.task import TaskChoice, TaskFamily, floor_us
from sparsesmith.formats.format import OneOf
from sparsesmith.operations import Problem

_TEXT = Template("""//@ task row_softmax
//@ launch softmax grid=ceil_div(rows*$lanes,128) block=128
extern "C" __global__ void softmax(int rows, int cols, const T* __restrict__ x, T* __restrict__ y) {
  int row = (blockIdx.x * 128 + threadIdx.x) / $lanes, lane = threadIdx.x % $lanes;
  bool inside = row < rows;
  const T* from = x + (size_t)(inside ? row : 0) * cols;
  T largest = from[0], sum = 0;
  for (int col = lane; col < cols; col += $lanes) largest = from[col] > largest ? from[col] : largest;
  for (int step = $lanes / 2; step > 0; step /= 2) {
    T other = __shfl_xor_sync(0xffffffff, largest, step);
    largest = other > largest ? other : largest;
  }
  for (int col = lane; col < cols; col += $lanes) sum += exp(from[col] - largest);
  for (int step = $lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  T scale = 1 / sum;
  if (inside)
    for (int col = lane; col < cols; col += $lanes) y[(size_t)row * cols + col] = exp(from[col] - largest) * scale;
}
""")


def _write(choice: TaskChoice) -> str:
    return _TEXT.substitute(lanes=choice.integer("lanes"))


def _prospects(problem: Problem) -> Iterator[Prospect]:
    for lanes in (4, 8, 32):
        yield Prospect(floor_us(problem) * (1 + 4 / lanes), {"lanes": lanes})


FAMILIES = (
    TaskFamily(
        name="row_softmax_lanes",
        operation="row_softmax",
        strategy="A group of lanes a row.",
        parameters={"lanes": OneOf(8, (4, 8, 32))},
        write=_write,
        prospects=_prospects,
    ),
)
