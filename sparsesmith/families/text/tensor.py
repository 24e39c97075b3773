"""Products of tensor cores on 16-bit numbers with sums in float32 (PTX ISA, `mma.m16n8k16`).

Which dense column stands in which place of an instruction is free: a lane reads `width` neighbouring columns of a row
at once, one for each of as many products.
"""

from collections.abc import Iterator

from sparsesmith.families.text.packed import pairs
from sparsesmith.families.text.program import Choice
from sparsesmith.families.text.template import cuda_beside

_CUDA = cuda_beside(__name__)
_OF = {"float16": "f16", "bfloat16": "bf16"}

COLUMNS = 8
"""Dense columns of one product."""
WORDS_A_STORE = 4


def multiplier(choice: Choice) -> str:
    """A device function `multiply(sums, left, low, high)`: adds the product of a lane's parts of 16 x 16 and 16 x 8."""
    return choice.fill(_CUDA["multiply"], of=_OF[choice.element_type])


def products(width: int, sums: str = "sums", right: str = "right") -> Iterator[str]:
    """A product for each column of a vector: that number of two rows is one operand, of two others the second."""
    for place in range(width):
        rows = [f"{right}[{row}]" if width == 1 else pairs(f"{right}[{row}]", width)[place // 2] for row in range(4)]
        operands = (_joined(rows[0], rows[1], place, width), _joined(rows[2], rows[3], place, width))
        yield f"multiply({sums}[{place}], left, {', '.join(operands)});"


def _joined(first: str, second: str, place: int, width: int) -> str:
    """A word of one number of each."""
    if width == 1:
        return f"{first} | (unsigned int){second} << 16"
    return f"__byte_perm({first}, {second}, {'0x7632' if place % 2 else '0x5410'})"


def stores(width: int) -> Iterator[str]:
    """A lane has neighbouring columns of a row: those of its first place in each product, then of its second."""
    stored = min(width, WORDS_A_STORE)
    sums = [f"sums[{place % width}][{place // width} + 2 * lower]" for place in range(2 * width)]
    both = [f"both({sums[2 * place]}, {sums[2 * place + 1]})" for place in range(width)]
    for place in range(0, width, stored):
        some = ", ".join(both[place : place + stored])
        yield f"result[{place // stored}] = {some if stored == 1 else f'make_uint{stored}({some})'};"


def join(choice: Choice, warps: int, sums: int, split: str) -> str:
    """The first of `splits` neighbouring warps, which `split` counts, gets the others' sums added to its own, in order;
    the others leave."""
    return choice.fill(_CUDA["join"], warps=warps, sums=sums, split=split)
