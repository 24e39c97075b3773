"""Numbers of 16 bits read and written in words of two: one load of 4, 8 or 16 bytes for 2, 4 or 8 of them.

A word is `unsigned int`, `uint2` or `uint4`; each half of it is widened by itself, so that sums stay in float32.
"""

from sparsesmith.elements import ALL_TYPES, WIDE_TYPES
from sparsesmith.families.text.program import Choice, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith_proto.message import ElementType

SHORT_TYPES: tuple[ElementType, ...] = tuple(name for name in ALL_TYPES if name not in WIDE_TYPES)

_CUDA = cuda_beside(__name__)
_OF_BITS = {"float16": "__ushort_as_half", "bfloat16": "__ushort_as_bfloat16"}
_BITS_OF = {"float16": "__half_as_ushort", "bfloat16": "__bfloat16_as_ushort"}


def words(width: int) -> str:
    """The C type that holds `width` numbers: 2, 4 or 8."""
    return "unsigned int" if width == 2 else vector("uint", width // 2)


def pairs(name: str, width: int) -> tuple[str, ...]:
    """The words of a vector of that name, two numbers each."""
    return (name,) if width == 2 else tuple(f"{name}.{field}" for field in "xyzw"[: width // 2])


def readers(choice: Choice) -> str:
    """Device functions `low(word)` and `high(word)`: its two numbers as what products are summed in."""
    return choice.fill(_CUDA["readers"], of_bits=_OF_BITS[choice.element_type])


def writer(choice: Choice) -> str:
    """A device function `both(low, high)`: the word of two sums."""
    return choice.fill(_CUDA["writer"], bits_of=_BITS_OF[choice.element_type])
