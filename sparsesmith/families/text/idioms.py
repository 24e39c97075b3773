"""Pieces of kernels that many families share."""

from sparsesmith.families.text.program import FULL_WARP, Choice, Fact, Launch
from sparsesmith.families.text.template import cuda_beside, fill
from sparsesmith.formats.format import numbers

_CUDA = cuda_beside(__name__)


def dot(choice: Choice, start: str, step: int, base: str = "", unroll: int = 0, x: str = "x") -> str:
    """Adds values[j] * x[col_indices[j]] for j = start, start + step, ... < end to `sum`.

    With unroll > 1 (0: the parameter) a batch's loads are all issued before the first is used; the last batch repeats
    the row's last nonzero with value zero, so that there is no slow remainder loop.
    """
    unroll = unroll or choice.integer("unroll")
    if unroll == 1:
        return choice.fill(_CUDA["dot_one"], start=start, step=step, base=base, x=x)
    stride, loaded = step * unroll, batch(choice, step, unroll)
    return choice.fill(_CUDA["dot"], start=start, stride=stride, batch=loaded, unroll=unroll, base=base, x=x)


def batch(choice: Choice, step: int, unroll: int) -> str:
    """Loads `col[unroll]` and `value[unroll]` from j, j + step, ...; past `end` the last column and zero."""
    return choice.fill(_CUDA["batch"], unroll=unroll, times="" if step == 1 else f" * {step}")


def warp_sum(
    lanes: int, name: str = "sum", mask: str = FULL_WARP, lowest: int = 1, *, first: Fact | None = None
) -> str:
    """Sums `name` over groups of `lanes` lanes that lie `lowest` apart; nothing for one lane. `first`: the first step,
    half the lanes, where a text names it."""
    if lanes == 1:
        return ""
    return fill(_CUDA["warp_sum"], first=first or lanes * lowest // 2, lowest=lowest, name=name, mask=mask)


def block_sum(block: int, target: str, partials: str = "partials") -> str:
    """Sums `sum` over the block and lets thread 0 store it to `target`."""
    names = {"warp_sum": warp_sum(32), "target": target}
    if block == 32:
        return fill(_CUDA["block_sum_of_a_warp"], **names)
    return fill(_CUDA["block_sum"], partials=partials, warps=block // 32, **names)


def zero_output(choice: Choice) -> Launch:
    """A launch that clears y, for kernels that add to it atomically."""
    return Launch("zero", "ceil_div(num_rows,256)", 256, choice.fill(_CUDA["zero"]))


def diagonals_in(choice: Choice) -> tuple[Fact, Fact]:
    """The offsets of all diagonals as the text holds them, and how many they are."""
    offsets = numbers(choice.word("offsets"))
    listed = choice.fact("OFFSETS", "diagonals", ", ".join(map(str, offsets)))
    return listed, choice.fact("COUNT", "num_diagonals", len(offsets))


def outside(choice: Choice) -> tuple[Fact, Fact]:
    """First rows, and columns at the end, where a vector of rows would meet columns that are none."""
    rows, offsets = choice.integer("rows"), numbers(choice.word("offsets"))
    below, above = max(0, -(offsets[0] // rows) * rows), max(0, ((offsets[-1] + rows - 1) // rows + 1) * rows - 1)
    return (
        choice.fact("BELOW", f"max(0,0-diagonal_min//{rows}*{rows})", below),
        choice.fact("ABOVE", f"max(0,((diagonal_max+{rows - 1})//{rows}+1)*{rows}-1)", above),
    )


def part(choice: Choice, width: int) -> str:
    """A device function that picks one element of a vector; the choice is known when it is compiled."""
    picked = "k == 0 ? v.x : v.y" if width == 2 else "k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w"
    return f"__device__ __forceinline__ {choice.scalar} part({choice.scalar}{width} v, int k) {{ return {picked}; }}"
