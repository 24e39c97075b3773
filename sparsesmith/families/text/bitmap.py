"""What programs of the format `bitmap` have alike: a warp a piece, its bits and values by asynchronous copies."""

from collections.abc import Mapping

from sparsesmith.families.text.program import Choice
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.bitmap import CHUNK_COLS, LINE, LINES_AT_ONCE, PART_COLS
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)
SHORT_BYTES = 2

PIECES: Mapping[str, OneOf] = {
    "part_cols": PART_COLS,
    "splits": OneOf(4, (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)),
    "strips": OneOf(1, (1, 2, 4)),
}
"""How a matrix is cut: columns of a piece, warps a strip, strips a thread block."""


def functions(choice: Choice) -> str:
    """Device functions that `begin` and `walk` call."""
    return choice.fill(_CUDA["functions"])


def begin(choice: Choice, fixed_bytes: int) -> str:
    """Who a warp is, and the copies of its first piece; `fixed_bytes` of shared memory lie before a warp's lines, bits
    first."""
    part_cols = choice.integer("part_cols")
    return choice.fill(
        _CUDA["begin"],
        fixed_bytes=fixed_bytes,
        piece_words=part_cols // CHUNK_COLS * 32,
        mask_copies=mask_bytes(part_cols) // 16,
    )


def walk(choice: Choice, products: str, *, before: str = "", after: str = "") -> str:
    """Goes through a piece as its values arrive: `products` with `left` of tile `k`; once a chunk
    `before` and `after`."""
    return choice.fill(_CUDA["walk"], before=before, products=products, after=after)


def mask_bytes(part_cols: int) -> int:
    """Bits of a piece."""
    return part_cols // CHUNK_COLS * 32 * 4


def most_bytes(part_cols: int) -> int:
    """Lines of a piece that lacks nothing."""
    longest = part_cols // 4 + 2
    return -(-longest // LINES_AT_ONCE) * LINES_AT_ONCE * LINE * SHORT_BYTES


def num_warps(choice: Choice) -> int:
    """Of a thread block."""
    return choice.integer("strips") * choice.integer("splits")
