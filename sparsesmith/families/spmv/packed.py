"""SpMV of 16-bit numbers from CSR with values and columns in words of several."""

from collections.abc import Iterator

from sparsesmith.families.axes import INDEX, LARGE_BLOCK, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, indices, loads, near, number
from sparsesmith.families.family import Family
from sparsesmith.families.spmv.csr_prospects import rows_of_lanes
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.packed import SHORT_TYPES, pairs, readers, words
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)


def _columns(choice: Choice, width: int) -> tuple[str, list[str]]:
    """What reads the columns of a vector of values from j on, and each of them."""
    if choice.word("index") == "u16":
        read = choice.load(f"(const {words(width)}*)(col_indices + j)")
        halves = [(f"({pair} & 0xffff)", f"({pair} >> 16)") for pair in pairs("cols", width)]
        return f"{words(width)} cols = {read};", [half for both in halves for half in both]
    reads = [choice.load(f"(const int2*)(col_indices + j + {at})") for at in range(0, width, 2)]
    declared = "\n".join(f"int2 cols{number} = {read};" for number, read in enumerate(reads))
    return declared, [f"cols{number}.{field}" for number in range(width // 2) for field in "xy"]


def _write(choice: Choice) -> str:
    lanes, width = choice.integer("lanes"), choice.integer("width")
    read_columns, columns = _columns(choice, width)
    values = [f"{half}({pair})" for pair in pairs("packed", width) for half in ("low", "high")]
    products = [
        f"sum += {value} * {choice.widened(f'x[{column}]')};" for value, column in zip(values, columns, strict=True)
    ]
    body = choice.fill(
        _CUDA["rows"],
        step=lanes * width,
        Words=words(width),
        read_columns=read_columns,
        products="\n".join(products),
        warp_sum=warp_sum(lanes),
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{choice.integer('block') // lanes})", body)
    return program(choice, {"index": choice.word("index")}, launch, functions=(readers(choice),))


def _prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(
        width=(8, 4, 2),
        lanes=near(work.statistics.mean / 8, (4, 8, 16, 32), 2),
        block=(128, 256),
        load=loads(work),
        index=indices(work.statistics.narrow),
    ):
        yield rows_of_lanes(work, values, number(values, "lanes"), number(values, "width"))


CSR_PACKED = Family(
    name="csr_packed",
    operation="spmv",
    format="csr",
    strategy="Lanes a row with aligned words of 2 to 8 values of 16 bits and as many columns; long rows.",
    parameters={"width": OneOf(8, (2, 4, 8)), "lanes": OneOf(16, (4, 8, 16, 32)), "block": LARGE_BLOCK}
    | streamed(index=INDEX),
    suits=lambda pattern: pattern.nnz >= 8 * pattern.num_rows and pattern.num_rows < 2**26,
    write=_write,
    element_types=SHORT_TYPES,
    prospects=_prospects,
)

FAMILIES = (CSR_PACKED,)
