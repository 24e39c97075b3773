"""How SpMM kernels share the columns of the dense operands: `lanes` threads of a group, `chunks` vectors a thread."""

from dataclasses import dataclass

from sparsesmith.elements import WIDE_TYPES
from sparsesmith.families.text.program import Choice, Fact, vector
from sparsesmith.formats.format import OneOf, ParameterSpec

ONE_CHUNK_PARAMETERS: dict[str, ParameterSpec] = {
    "vector": OneOf(4, (1, 2, 4)),
    "lanes": OneOf(8, (1, 2, 4, 8, 16, 32)),
}
TILE_PARAMETERS: dict[str, ParameterSpec] = {**ONE_CHUNK_PARAMETERS, "chunks": OneOf(1, (1, 2, 4))}


@dataclass(frozen=True)
class DenseTile:
    """The columns that one group of threads computes: vector x lanes x chunks of them."""

    choice: Choice
    vector: int
    lanes: int
    chunks: int
    is_named: bool = False
    """Whether an open text names lanes and width, too; what follows from the dense columns it always names."""

    @property
    def num_dense_cols(self) -> int:
        return self.choice.num_dense_cols

    @property
    def dense_cols(self) -> Fact:
        """`num_dense_cols` as texts hold it: the row length of the dense operands."""
        return self.fact("N", "num_dense_cols", self.num_dense_cols)

    @property
    def width(self) -> int:
        return self.vector * self.lanes * self.chunks

    @property
    def c_type(self) -> str:
        return vector(self.choice.scalar, self.vector)

    @property
    def sum_type(self) -> str:
        """Of a vector of sums."""
        return vector(self.choice.sum_scalar, self.vector)

    @property
    def num_tiles(self) -> int:
        """That cover the dense columns."""
        return -(-self.num_dense_cols // self.width)

    @property
    def grid(self) -> str:
        """The rest of a grid expression: tiles side by side."""
        return "" if self.num_tiles == 1 else f",{self.tiles_fact}"

    @property
    def lanes_fact(self) -> Fact:
        """`lanes` as they follow from the dense columns: with another number a text of this shape would leave columns
        out, or take some twice. One lane has no name."""
        columns, taken = self.num_dense_cols, self.vector * self.chunks
        if self.num_tiles == 1:
            meaning, is_so = f"ceil_div(N,{taken})", self.lanes == -(-columns // taken)
        else:
            most = columns // (2 * taken)
            meaning, is_so = f"min({self.lanes},N//{2 * taken})", self.lanes <= most and not self.overhangs
        exists = self.is_named and self.lanes > 1
        return self.fact("LANES", meaning if is_so else str(self.lanes), self.lanes, exists=exists)

    @property
    def width_fact(self) -> Fact:
        """`width` by `lanes_fact`; has a name where there are several tiles."""
        per_lane = "*LANES" if self.lanes > 1 else ""
        exists = self.is_named and self.num_tiles > 1
        return self.fact("COLUMNS", f"{self.vector * self.chunks}{per_lane}", self.width, exists=exists)

    @property
    def tiles_fact(self) -> Fact:
        """`num_tiles` by `width_fact`; has a name as that, whether that has one or not."""
        return self.fact("TILES", f"ceil_div(N,{self.width_fact})", self.num_tiles, exists=self.num_tiles > 1)

    @property
    def edge_fact(self) -> Fact:
        """The last column that a vector may begin at; has a name where tiles overhang."""
        return self.fact("EDGE", f"N-{self.vector}", self.num_dense_cols - self.vector, exists=self.overhangs)

    def fact(self, name: str, meaning: str, value: int, *, exists: bool = True) -> Fact:
        """A number that follows from the tile's; itself where a text is not open, or has no such number."""
        return Fact(name, meaning, value, self.choice.is_open and exists)

    @property
    def facts(self) -> tuple[Fact, Fact, Fact, Fact]:
        """All that an open text names of a tile, each behind what it follows from."""
        return self.dense_cols, self.lanes_fact, self.width_fact, self.tiles_fact

    def column(self, tile_number: str = "blockIdx.y") -> str:
        """First column of a thread."""
        terms = [f"{tile_number} * {self.width_fact}"] if self.num_tiles > 1 else []
        if self.lanes > 1:
            terms.append(f"threadIdx.x % {self.lanes_fact}" + (f" * {self.vector}" if self.vector > 1 else ""))
        return " + ".join(terms) or "0"

    @property
    def overhangs(self) -> bool:
        """Whether tiles do not cover the columns evenly."""
        return self.num_dense_cols % self.width != 0

    @property
    def guard(self) -> str:
        """What ends a test for rows where tiles overhang."""
        return f" || column >= {self.dense_cols}" if self.overhangs else ""

    @property
    def declare(self) -> str:
        """The accumulator, zero."""
        return f"{self.sum_type} sum{'' if self.chunks == 1 else f'[{self.chunks}]'} = {{}};"

    @property
    def fields(self) -> tuple[str, ...]:
        """What to append to a vector's name to reach each of its elements."""
        return ("",) if self.vector == 1 else tuple(f".{field}" for field in "xyzw"[: self.vector])

    def multiply_add(self, target: str, value: str, right: str = "right") -> str:
        """target += value * right, element by element."""
        return " ".join(f"{target}{field} += {value} * {right}{field};" for field in self.fields)

    def plus(self, target: str, part: str) -> str:
        """target += part, element by element."""
        return " ".join(f"{target}{field} += {part}{field};" for field in self.fields)

    def place(self, address: str) -> str:
        """The vector at an address."""
        return f"*({address})" if self.vector == 1 else f"*({self.c_type}*)({address})"

    def read(self, address: str) -> str:
        """The constant vector at an address, as what products are summed in."""
        return self.choice.widened(f"*({address})") if self.vector == 1 else f"*(const {self.c_type}*)({address})"

    def add(self, value: str, col: str, absent: str = "") -> str:
        """Statements: sum += value * b[col, columns of this thread], or nothing where the column is absent.

        They need a scope of their own.
        """
        read = self.read(f"b + (size_t){col} * {self.dense_cols} + column{self._span}")
        zero = [f"if ({absent}) right = {self.zero};"] if absent else []
        return self._each([f"{self.sum_type} right = {read};", *zero, self.multiply_add(f"sum{self._chunk}", value)])

    def store(self, target: str) -> str:
        """Writes `sum` to the thread's columns of the row that starts at `target`."""
        stored = self.choice.narrowed(f"sum{self._chunk}")
        return self._each([f"{self.place(f'{target} + column{self._span}')} = {stored};"])

    @property
    def zero(self) -> str:
        """A vector of zeros."""
        return "0" if self.vector == 1 else f"{self.c_type}()"

    @property
    def _chunk(self) -> str:
        """The subscript of a chunk."""
        return "" if self.chunks == 1 else "[q]"

    @property
    def _span(self) -> str:
        """The distance of a chunk from the first."""
        return "" if self.chunks == 1 else f" + q * {self.lanes * self.vector}"

    def _each(self, lines: list[str]) -> str:
        """Statements for every chunk."""
        if self.chunks == 1:
            return "\n".join(lines)
        head = f"#pragma unroll\nfor (int q = 0; q < {self.chunks}; q++) {{"
        return "\n".join([head, *(f"  {line}" for line in lines), "}"])

    def fill(self, text: str, **places: object) -> str:
        """A template filled as by `Choice.fill`, with what a tile adds: `$column`, `$guard`, `$declare`, `$V`, `$Sums`
        (a vector of sums), `$zero`, `$dense_cols`, `$add(value, col)`, `$store(row)`, `$read(address)`,
        `$place(address)`, `$fma(sum, value)` and `$plus(sum, part)`."""
        own: dict[str, object] = {
            "column": self.column(),
            "guard": self.guard,
            "declare": self.declare,
            "V": self.c_type,
            "Sums": self.sum_type,
            "zero": self.zero,
            "dense_cols": self.dense_cols,
            "add": self.add,
            "store": self.store,
            "read": self.read,
            "place": self.place,
            "fma": self.multiply_add,
            "plus": self.plus,
        }
        return self.choice.fill(text, **own | places)


def tile_of(choice: Choice, *, is_named: bool = False) -> DenseTile:
    """The tile that a choice asks for."""
    chunks = choice.integer("chunks") if "chunks" in choice.values else 1
    return DenseTile(choice, choice.integer("vector"), choice.integer("lanes"), chunks, is_named)


def tile_fits(choice: Choice) -> bool:
    """Vectors are aligned and at most 16 bytes, no tile is wholly idle, several chunks cover the columns evenly.

    Numbers of 16 bits are read one by one: each is widened by itself.
    """
    tile = tile_of(choice)
    if choice.element_type not in WIDE_TYPES and tile.vector > 1:
        return False
    aligned = choice.num_dense_cols % tile.vector == 0 and tile.vector <= choice.widest
    needed = tile.width < 2 * max(choice.num_dense_cols, 1)
    even = tile.chunks == 1 or not tile.overhangs
    return aligned and needed and even
