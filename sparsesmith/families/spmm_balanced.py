"""SpMM over equal pieces of work: a group of lanes walks one piece, rows that it cuts are completed by a carry."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.dense_tiles import TILE_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import Launch, fill, program
from sparsesmith.families.spmm_rows import walk_row
from sparsesmith.formats.format import OneOf


def _write_merge(choice: Choice) -> str:
    block, tile, width = choice.integer("block"), tile_of(choice), choice.num_dense_cols
    body = fill(
        """
int segment = (blockIdx.x * $block + threadIdx.x) / $lanes;
int column = $column;
if (segment >= num_segments$guard) return;
int last = segment_rows[segment + 1];
int begin = segment_offsets[segment], stop = segment_offsets[segment + 1];
for (int row = segment_rows[segment]; row <= last; row++) {
  int end = row < last ? row_offsets[row + 1] : stop;
  $declare
  $walk
  $T* target = row < last ? c + (size_t)row * $width : carry + (size_t)segment * $width;
  $store
  begin = end;
}
""",
        block=block,
        lanes=tile.lanes,
        column=tile.column,
        guard=tile.guard,
        declare=tile.declare(),
        walk=walk_row(tile, choice, choice.integer("unroll")),
        T=tile.scalar,
        width=width,
        store=tile.store("target"),
    )
    carry = fill(
        """
int segment = (blockIdx.x * 256 + threadIdx.x) / $width;
int column = (blockIdx.x * 256 + threadIdx.x) % $width;
if (segment >= num_segments) return;
int row = segment_rows[segment + 1];
if (row < num_rows) atomicAdd(c + (size_t)row * $width + column, carry[segment * $width + column]);
""",
        width=width,
    )
    return program(
        "spmm",
        choice.element_type,
        "csr_merge",
        {"items": choice.integer("items"), "balance": choice.word("balance")},
        Launch(
            "spmm", f"ceil_div(num_segments,{block // tile.lanes}){tile.grid}", block, body, choice.word("registers")
        ),
        Launch("add_carry", f"ceil_div(num_segments*{width},256)", 256, carry),
    )


SPMM_MERGE = Family(
    name="spmm_merge",
    operation="spmm",
    strategy="Equal pieces of work for each group of lanes, by merge path or by nonzeros, cut rows completed by a "
    "second launch; skewed rows.",
    parameters={
        **TILE_PARAMETERS,
        "items": OneOf(64, (16, 32, 64, 128, 256, 512)),
        "balance": OneOf("merge", ("merge", "nnz")),
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: True,
    write=_write_merge,
    allows=tile_fits,
)

FAMILIES = (SPMM_MERGE,)
