"""How SpMM kernels share the columns of the dense operands: `lanes` threads of a group, `chunks` vectors a thread."""

from dataclasses import dataclass

from sparsesmith.families.family import Choice
from sparsesmith.families.source import BYTES, fill, scalar, vector
from sparsesmith.formats.format import OneOf, ParameterSpec

ONE_CHUNK_PARAMETERS: dict[str, ParameterSpec] = {
    "vector": OneOf(4, (1, 2, 4)),
    "lanes": OneOf(8, (1, 2, 4, 8, 16, 32)),
}
TILE_PARAMETERS: dict[str, ParameterSpec] = {**ONE_CHUNK_PARAMETERS, "chunks": OneOf(1, (1, 2, 4))}


@dataclass(frozen=True)
class DenseTile:
    """The columns that one group of threads computes: vector x lanes x chunks of them."""

    vector: int
    lanes: int
    chunks: int
    num_dense_cols: int
    scalar: str

    @property
    def width(self) -> int:
        return self.vector * self.lanes * self.chunks

    @property
    def c_type(self) -> str:
        return vector(self.scalar, self.vector)

    @property
    def grid(self) -> str:
        """The rest of a grid expression: tiles side by side."""
        tiles = -(-self.num_dense_cols // self.width)
        return "" if tiles == 1 else f",{tiles}"

    @property
    def column(self) -> str:
        """First column of a thread."""
        terms = [f"blockIdx.y * {self.width}"] if self.grid else []
        if self.lanes > 1:
            terms.append(f"threadIdx.x % {self.lanes}" + (f" * {self.vector}" if self.vector > 1 else ""))
        return " + ".join(terms) or "0"

    @property
    def guard(self) -> str:
        """What ends a test for rows where tiles do not cover the columns evenly."""
        return f" || column >= {self.num_dense_cols}" if self.num_dense_cols % self.width else ""

    def declare(self) -> str:
        """The accumulator, zero."""
        return f"{self.c_type} sum{'' if self.chunks == 1 else f'[{self.chunks}]'} = {{}};"

    def _each(self, lines: str) -> str:
        """`lines` for every chunk: `$q` is its subscript, `$span` its distance from the first."""
        if self.chunks == 1:
            return lines.replace("$q", "").replace("$span", "")
        span = f" + q * {self.lanes * self.vector}"
        return fill(
            "#pragma unroll\nfor (int q = 0; q < $chunks; q++) {\n  $lines\n}",
            chunks=self.chunks,
            lines=lines.replace("$q", "[q]").replace("$span", span),
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """What to append to a vector's name to reach each of its elements."""
        return ("",) if self.vector == 1 else tuple(f".{field}" for field in "xyzw"[: self.vector])

    def multiply_add(self, target: str, value: str) -> str:
        """target += value * right, element by element."""
        return " ".join(f"{target}{field} += {value} * right{field};" for field in self.fields)

    def place(self, address: str) -> str:
        """The vector at an address."""
        return f"*({address})" if self.vector == 1 else f"*({self.c_type}*)({address})"

    def read(self, address: str) -> str:
        """The constant vector at an address."""
        return f"*({address})" if self.vector == 1 else f"*(const {self.c_type}*)({address})"

    def add(self, value: str, col: str, absent: str = "") -> str:
        """Statements: sum += value * b[col, columns of this thread], or nothing where the column is absent.

        They need a scope of their own.
        """
        lines = [f"{self.c_type} right = {self.read(f'b + (size_t){col} * {self.num_dense_cols} + column$span')};"]
        if absent:
            lines.append(f"if ({absent}) right = {self.zero};")
        return self._each("\n".join([*lines, self.multiply_add("sum$q", value)]))

    @property
    def zero(self) -> str:
        """A vector of zeros."""
        return "0" if self.vector == 1 else f"{self.c_type}()"

    def store(self, target: str) -> str:
        """Writes `sum` to the thread's columns of the row that starts at `target`."""
        return self._each(f"{self.place(target + ' + column$span')} = sum$q;")


def tile_of(choice: Choice) -> DenseTile:
    """The tile that a choice asks for."""
    return DenseTile(
        choice.integer("vector"),
        choice.integer("lanes"),
        choice.integer("chunks") if "chunks" in choice.values else 1,
        choice.num_dense_cols,
        scalar(choice.element_type),
    )


def tile_fits(choice: Choice) -> bool:
    """Vectors are aligned and at most 16 bytes, no tile is wholly idle, several chunks cover the columns evenly."""
    tile = tile_of(choice)
    aligned = choice.num_dense_cols % tile.vector == 0 and tile.vector * BYTES[choice.element_type] <= 16
    needed = tile.width < 2 * max(choice.num_dense_cols, 1)
    even = tile.chunks == 1 or choice.num_dense_cols % tile.width == 0
    return aligned and needed and even


def add_batch(tile: DenseTile, unroll: int) -> str:
    """Adds the products of a batch `col[unroll]`, `value[unroll]`."""
    return fill(
        """
#pragma unroll
for (int u = 0; u < $unroll; u++) {
  $add
}
""",
        unroll=unroll,
        add=tile.add("value[u]", "col[u]"),
    )
