"""SpMM of 16-bit numbers from CSR, row by row, with dense columns in words of several."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import BLOCK, INDEX, UNROLL, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, indices, loads, near, number
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.prospects import gathered
from sparsesmith.families.text.idioms import batch
from sparsesmith.families.text.packed import SHORT_TYPES, pairs, readers, words, writer
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)
_WIDTHS, _LANES = (2, 4, 8), (1, 2, 4, 8, 16, 32)


def _write(choice: Choice) -> str:
    lanes, width, unroll = (choice.integer(name) for name in ("lanes", "vector", "unroll"))
    tiles = ceil(choice.num_dense_cols / (lanes * width))
    halves = [f"{half}({pair})" for pair in pairs("right", width) for half in ("low", "high")]
    stored = [f"both(sum[{2 * place}], sum[{2 * place + 1}])" for place in range(width // 2)]
    body = choice.fill(
        _CUDA["rows"],
        tile=f"blockIdx.y * {lanes * width} + " if tiles > 1 else "",
        dense_cols=choice.num_dense_cols,
        Words=words(width),
        batch=batch(choice, 1, unroll),
        read=choice.vector_read,
        products=" ".join(f"sum[{place}] += value[u] * {half};" for place, half in enumerate(halves)),
        stores="\n".join(f"{word} = {both};" for word, both in zip(pairs("result", width), stored, strict=True)),
    )
    grid = f"ceil_div(num_rows,{choice.integer('block') // lanes})" + (f",{tiles}" if tiles > 1 else "")
    launch = main_launch(choice, grid, body)
    return program(choice, {"index": choice.word("index")}, launch, functions=(readers(choice), writer(choice)))


def _fits(choice: Choice) -> bool:
    """Words are aligned, and no lane is wholly idle."""
    width = choice.integer("vector")
    return choice.num_dense_cols % width == 0 and width * choice.integer("lanes") < 2 * choice.num_dense_cols


def _prospects(work: Work) -> Iterator[Prospect]:
    widths = [width for width in reversed(_WIDTHS) if work.num_dense_cols % width == 0][:2]
    for width in widths:
        covering = min(32, 1 << max(0, ceil(work.num_dense_cols / width) - 1).bit_length())
        for rest in combine(
            lanes=tuple(lanes for lanes in (covering, covering // 2) if lanes),
            unroll=near(min(work.statistics.mean, 8), (1, 2, 4, 8), 2),
            block=(128, 256),
            load=loads(work)[:1],
            index=indices(work.statistics.narrow),
        ):
            unroll = number(rest, "unroll")
            padding = min(2, ceil(work.statistics.mean / unroll) * unroll / work.statistics.mean)
            chain = 2 + 2 * ceil(work.statistics.longest / unroll)
            yield gathered(work, {"vector": width, **rest}, work.csr_bytes(str(rest["index"])), padding, chain)


SPMM_ROWS_PACKED = Family(
    name="spmm_rows_packed",
    operation="spmm",
    format="csr",
    strategy="A group of lanes a row, words of 2 to 8 dense columns of 16 bits a lane, batches of gathers in flight.",
    parameters={"vector": OneOf(8, _WIDTHS), "lanes": OneOf(4, _LANES), "unroll": UNROLL, "block": BLOCK}
    | streamed(index=INDEX),
    suits=lambda pattern: pattern.num_rows < 2**26,
    write=_write,
    allows=_fits,
    element_types=SHORT_TYPES,
    prospects=_prospects,
)

FAMILIES = (SPMM_ROWS_PACKED,)
