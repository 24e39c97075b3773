"""Program text: directives, signatures and what every family writes with: its choice, its launches.

Families must read alike, for people and for the model that learns from them: what they share is written once, here and
in `idioms`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparsesmith.elements import ELEMENTS, c_type, sum_c_type
from sparsesmith.families.text import template, values
from sparsesmith.families.text.values import Compression
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import Argument, ParameterValue
from sparsesmith.formats.values.compressed import compressed
from sparsesmith.program.directives import WAIT_INSTRUCTION
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.message import ElementType, Operation

FULL_WARP = "0xffffffff"
MAX_STATIC_SHARED_BYTES = 48 * 1024
"""What a kernel may declare; more is asked for in the launch, up to `directives.MAX_SHARED_BYTES`."""
SHORT_TYPES: Mapping[str, str] = {"unsigned short": "ushort", "unsigned char": "uchar"}
_WAIT = f'asm volatile("{WAIT_INSTRUCTION};" ::: "memory");'


def vector(element: str, width: int) -> str:
    """The CUDA type of `width` elements of a C type: `float4`, `int2`, `ushort4`, or the scalar itself for 1."""
    if width == 1:
        return element
    return SHORT_TYPES.get(element, element) + str(width)


def c_index_type(index: str) -> str:
    """The C type of a column index, from the parameter `index`."""
    if index.startswith("u16"):
        return "unsigned short"
    return "unsigned char" if index == "u8" else "int"


@dataclass(frozen=True)
class Fact:
    """A number in a text: itself, or a name that a `let` line gives to it."""

    name: str
    meaning: str
    """What stands behind the equals sign of its `let` line; names of facts before it may stand in it."""
    value: object
    is_open: bool

    def __str__(self) -> str:
        return self.name if self.is_open else str(self.value)

    @property
    def plain(self) -> ParameterValue:
        """What it is, as a format's parameter."""
        return self.value if isinstance(self.value, int) else str(self.value)

    @property
    def directive(self) -> str:
        return f"//@ let {self.name} = {self.meaning}"


@dataclass(frozen=True)
class Choice:
    """A family's parameters filled in, with what else a program text depends on."""

    values: Mapping[str, ParameterValue]
    element_type: ElementType
    num_dense_cols: int
    operation: Operation
    format: str
    compression: Compression | None = None
    """How values are stored; None: as they are."""
    is_open: bool = False
    """Whether facts of the matrix stand in the text by name, for the evaluator to fill in."""

    def fact(self, name: str, meaning: str, value: object) -> Fact:
        """A number that follows from the matrix; `meaning` as in a `let` line."""
        return Fact(name, meaning, value, self.is_open)

    def named(self, name: str, value: int) -> Fact:
        """A number that is chosen and stands in several places: an open text says it once, so that whoever writes one
        cannot say it differently in two."""
        return Fact(name, str(value), value, self.is_open)

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def word(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    @property
    def scalar(self) -> str:
        """The C type of one element."""
        return c_type(self.element_type)

    @property
    def sum_scalar(self) -> str:
        """The C type that products are summed in."""
        return sum_c_type(self.element_type)

    def widened(self, number: str) -> str:
        """An element as what products are summed in: itself, but for 16-bit types."""
        function = ELEMENTS[self.element_type].widen
        return f"{function}({number})" if function else number

    def narrowed(self, number: str) -> str:
        """A sum as an element."""
        function = ELEMENTS[self.element_type].narrow
        return f"{function}({number})" if function else number

    @property
    def element_bytes(self) -> int:
        return ELEMENTS[self.element_type].num_bytes

    @property
    def widest(self) -> int:
        """Elements of a 16-byte vector."""
        return 16 // self.element_bytes

    @property
    def starts_early(self) -> bool:
        return self.values.get("dependency") == "programmatic"

    @property
    def wait(self) -> str:
        """What stands before the first statement of the first kernel that touches a vector or scratch.

        Launch latency and what the kernel reads of the matrix until there overlap with the end of whatever ran before
        on the stream. Source: CUDA programming guide, "Programmatic dependent launch and synchronization".
        """
        return _WAIT if self.starts_early else ""

    @property
    def vector_read(self) -> str:
        """How x is read in vectors: as a constant, unless kernels before may still be writing it."""
        return "__ldca" if self.starts_early else "__ldg"

    def load(self, address: str) -> str:
        """A read of the matrix: `__ldg` keeps it in the caches, `__ldcs` streams it past x."""
        return f"__{self.word('load')}({address})"

    def value(self, index: str) -> str:
        """A read of one value, as what products are summed in."""
        return self.widened(values.one(self.compression, f"__{self.word('load')}", index))

    def value_at(self, index: str) -> str:
        """A read of one value by a plain subscript."""
        return values.subscript(self.compression, index)

    def value_vector(self, width: int, index: str) -> str:
        """A read of neighbouring values as a vector, or of one; the program then needs `value_function`."""
        if width == 1:
            return self.value(index)
        return values.vector(self.compression, f"__{self.word('load')}", self.scalar, width, index)

    def value_function(self, width: int) -> str:
        """A device function that reads of vectors may need."""
        return values.vector_function(self.compression, self.scalar, width)

    def fill(self, text: str, **places: object) -> str:
        """A template filled: parameters by their names, `$T`, `$S` (the type of sums), `$wait`, `$load(address)`,
        `$value(index)`, `$value_at(index)`, `$values(width, index)`, `$wide(element)`, `$narrow(sum)`, and `places`.
        """
        common: dict[str, object] = {
            **self.values,
            "T": self.scalar,
            "S": self.sum_scalar,
            "wide": self.widened,
            "narrow": self.narrowed,
            "wait": self.wait,
            "load": self.load,
            "value": self.value,
            "value_at": self.value_at,
            "values": lambda width, index: self.value_vector(int(width), index),
        }
        return template.fill(text, **common | places)


@dataclass(frozen=True)
class Launch:
    """A launch directive and the kernel it runs."""

    kernel: str
    grid: str
    block: int
    body: str
    registers: str = "few"
    """`few` for many resident warps; `free` lets the compiler keep all loads of a batch in flight."""
    shared: str = ""
    """Bytes of dynamic shared memory, an expression; none if empty."""
    reads_values: bool = False

    @property
    def directive(self) -> str:
        shared = f" shared={self.shared}" if self.shared else ""
        return f"//@ launch {self.kernel} grid={self.grid} block={self.block}{shared}"

    @property
    def bounds(self) -> str:
        """Launch bounds: naming one resident block is what frees the registers."""
        return f"{self.block}, 1" if self.registers == "free" else f"{self.block}"


def main_launch(
    choice: Choice, grid: str, body: str, *, kernel: str = "", block: int | None = None, shared: str = ""
) -> Launch:
    """The launch that reads the matrix, of the choice's block and registers; the kernel is named for the operation."""
    return Launch(
        kernel or choice.operation,
        grid,
        choice.integer("block") if block is None else block,
        body,
        choice.word("registers"),
        shared,
        reads_values=True,
    )


def program(
    choice: Choice,
    settings: Mapping[str, ParameterValue | Fact],
    *launches: Launch,
    functions: tuple[str, ...] = (),
    require: Mapping[str, int | Fact] | None = None,
    facts: tuple[Fact, ...] = (),
) -> str:
    """The whole program text: format with its `settings`, launches, device functions (empty ones are left out), kernels
    in launch order, one launched again only once.

    `require`: sizes that are written into the kernels, so that the program is for matrices with just these. `facts`:
    those that the text holds, each behind those that its meaning names.
    """
    lines = [fact.directive for fact in facts if fact.is_open]
    lines += [" ".join([f"//@ format {choice.format}", *(f"{name}={value}" for name, value in settings.items())])]
    if choice.compression is not None:
        lines.append(f"//@ values {choice.compression.storage}")
    if require:
        lines.append(" ".join(["//@ require", *(f"{name}={value}" for name, value in require.items())]))
    directives = [launch.directive for launch in launches]
    if choice.starts_early:
        directives[0] += " dependency=programmatic"
    header = ELEMENTS[choice.element_type].header
    lines += [*directives, *([f"#include <{header}>"] if header else []), *filter(None, functions)]
    arguments = _arguments(choice, settings)
    for launch in {launch.kernel: launch for launch in launches}.values():
        is_early = choice.starts_early and launch.kernel == launches[0].kernel
        head = f'extern "C" __global__ void __launch_bounds__({launch.bounds}) {launch.kernel}('
        table = values.shared_table(choice.compression, choice.scalar) if launch.reads_values else ""
        declared = ", ".join(_declaration(argument, is_early) for argument in arguments)
        lines += [head + declared + ") {", _indent(table + launch.body), "}"]
    return "\n".join(lines) + "\n"


def _arguments(choice: Choice, settings: Mapping[str, ParameterValue | Fact]) -> tuple[Argument, ...]:
    format_ = format_named(choice.format)
    values = {name: value.plain if isinstance(value, Fact) else value for name, value in settings.items()}
    parameters = complete_parameters(format_, values)
    if choice.compression is not None:
        format_ = compressed(format_, choice.compression.storage)
    return signature_of(format_, parameters, choice.operation, choice.element_type)


def _declaration(argument: Argument, is_early: bool) -> str:
    """A restricted input counts as constant: the compiler would move its loads up past the wait."""
    is_restricted = argument.c_type.endswith("*") and not (is_early and argument.role == "input")
    return f"{argument.c_type} {'__restrict__ ' if is_restricted else ''}{argument.name}"


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def with_values(choice: Choice, **changed: ParameterValue) -> Choice:
    """The choice with some parameters changed or added."""
    return replace(choice, values={**choice.values, **changed})
