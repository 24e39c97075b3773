"""A grammar of hostile programs: deeds that no kernel may do, on hosts that are honest, by detours and in disguises.

Attempt number n is made by a generator that n seeds. Its twin is the host without the deed: an attempt whose machine
code is the twin's has lost its deed to the compiler and harms nobody.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from benchmarks.judging.hostile.deeds import Deed, Kind, cuts, forbidden, skips, undefined
from benchmarks.judging.hostile.disguises import DISGUISES, WITHOUT_BRACES
from benchmarks.judging.hostile.mutants import mutant

CSR = (
    "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, "
    "const float* values, const float* x, float* y"
)
MERGE = (
    "int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, "
    "const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y"
)
_THREAD_A_ROW = """  int row = blockIdx.x * 128 + threadIdx.x, lane = 0;
  float sum = 0, sum_scale = 1;
  bool done = false;
  $before
  if (row < num_rows && !done) for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
    $each
    sum += $value * $entry;
  }
  $between
  if (row < num_rows) y[row] = sum;
  $behind
"""
_WARP_A_ROW = """  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0, sum_scale = 1;
  bool done = false;
  $before
  if (row < num_rows && !done) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) {
    $each
    sum += $value * $entry;
  }
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  $between
  if (row < num_rows && lane == 0) y[row] = sum;
  $behind
"""
PLACES = ("before", "each", "between", "behind")
PRODUCT = "sum += "
"""Begins the line of the product."""


@dataclass(frozen=True)
class Host:
    format: str
    grid: str
    parameters: str
    body: str
    has_scratch: bool = False


HOSTS = (
    Host("csr", "ceil_div(num_rows,128)", CSR, _THREAD_A_ROW),
    Host("csr", "ceil_div(num_rows,4)", CSR, _WARP_A_ROW),
    Host("csr_merge items=8 balance=nnz", "ceil_div(num_rows,128)", MERGE, _THREAD_A_ROW, True),
    Host("csr_merge items=8 balance=nnz", "ceil_div(num_rows,4)", MERGE, _WARP_A_ROW, True),
)


@dataclass(frozen=True)
class Attempt:
    number: int
    kind: Kind
    name: str
    """Deed, detour and disguise."""
    program: str
    twin: str


def attempt(number: int) -> Attempt:
    """The same for the same number."""
    chance = random.Random(f"attack {number}")
    chosen_deed = chance.choices((forbidden, skips, cuts, undefined, None), (4, 5, 2, 4, 3))[0]
    if chosen_deed is None:
        changed = mutant(chance)
        return Attempt(number, "mutant", changed.name, changed.program, changed.twin)
    host = chance.choice(HOSTS)
    deed = chosen_deed(chance, host.parameters)
    if deed.needs_scratch and not host.has_scratch:
        host = chance.choice([each for each in HOSTS if each.has_scratch])
    disguise = chance.choice(list(DISGUISES) if deed.is_statement else WITHOUT_BRACES)
    if disguise == "lambda" and "return" in str(deed.at):
        disguise = "loop"  # It would leave the lambda, not the kernel.
    name = f"{deed.name} / {disguise}"
    return Attempt(
        number, deed.kind, name, _disguised(host, deed, disguise, chance), _written(host, Deed("", deed.kind))
    )


def _disguised(host: Host, deed: Deed, disguise: str, chance: random.Random) -> str:
    if not deed.at:
        return _written(host, deed)
    place, text = next(iter(deed.at.items()))
    above, statement = DISGUISES[disguise](deed.above, text, chance)
    changed = Deed(deed.name, deed.kind, above, {**deed.at, place: statement}, deed.value, deed.entry, deed.launch)
    return _written(host, changed)


def _written(host: Host, deed: Deed) -> str:
    hooks = {place: deed.at.get(place, "") for place in PLACES}
    body = Template(host.body).safe_substitute({**hooks, "value": deed.value, "entry": deed.entry})
    return (
        f"//@ format {host.format}\n//@ launch spmv grid={host.grid} block=128{deed.launch}\n{deed.above}\n"
        f'extern "C" __global__ void spmv({host.parameters}) {{\n{body}}}\n'
    )


def names_of(attempts: Sequence[Attempt]) -> set[str]:
    """Deeds, detours and disguises among attempts."""
    return {part for each in attempts for part in each.name.split(" / ")}
