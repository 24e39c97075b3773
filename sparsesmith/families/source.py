"""Program text: directives, signatures and the idioms that all families share.

Families must read alike, for people and for the model that learns from them, so each idiom is written once, here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import HEAD, SPMM_TAIL, SPMV_TAIL, ParameterValue
from sparsesmith_proto.message import ElementType, Operation

SCALARS: Mapping[ElementType, str] = {"float32": "float", "float64": "double"}
BYTES: Mapping[ElementType, int] = {"float32": 4, "float64": 8}
FULL_WARP = "0xffffffff"
MAX_STATIC_SHARED_BYTES = 48 * 1024
"""What a kernel may declare; more is asked for in the launch, up to `directives.MAX_SHARED_BYTES`."""
SHORT_TYPES: Mapping[str, str] = {"unsigned short": "ushort", "unsigned char": "uchar"}


def scalar(element_type: ElementType) -> str:
    """The C type of one element."""
    return SCALARS[element_type]


def vector(c_type: str, width: int) -> str:
    """The CUDA type of `width` elements: `float4`, `int2`, `ushort4`, or the scalar itself for 1."""
    if width == 1:
        return c_type
    return SHORT_TYPES.get(c_type, c_type) + str(width)


def c_index_type(index: str) -> str:
    """The C type of a column index, from the parameter `index`."""
    if index.startswith("u16"):
        return "unsigned short"
    return "unsigned char" if index == "u8" else "int"


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

    @property
    def directive(self) -> str:
        shared = f" shared={self.shared}" if self.shared else ""
        return f"//@ launch {self.kernel} grid={self.grid} block={self.block}{shared}"

    @property
    def bounds(self) -> str:
        """Launch bounds: naming one resident block is what frees the registers."""
        return f"{self.block}, 1" if self.registers == "free" else f"{self.block}"


def program(
    operation: Operation,
    element_type: ElementType,
    format_name: str,
    format_parameters: Mapping[str, ParameterValue],
    *launches: Launch,
    require: Mapping[str, int] | None = None,
) -> str:
    """The whole program text: format, launches, kernels in launch order, one launched again only once.

    `require`: sizes that are written into the kernels, so that the program is for matrices with just these.
    """
    settings = "".join(f" {name}={value}" for name, value in format_parameters.items())
    lines = [f"//@ format {format_name}{settings}"]
    if require:
        lines.append("//@ require " + " ".join(f"{name}={value}" for name, value in require.items()))
    lines += [launch.directive for launch in launches]
    arguments = _arguments(operation, element_type, format_name, format_parameters)
    for launch in {launch.kernel: launch for launch in launches}.values():
        head = f'extern "C" __global__ void __launch_bounds__({launch.bounds}) {launch.kernel}('
        lines += [head + arguments + ") {", _indent(launch.body), "}"]
    return "\n".join(lines) + "\n"


def fill(template: str, **names: object) -> str:
    """`template` with each `$name` replaced. A name alone on its line takes a whole block of text, or none."""
    lines = []
    for line in template.strip("\n").split("\n"):
        alone = re.fullmatch(r"( *)\$(\w+)", line)
        if alone is None:
            lines.append(re.sub(r"\$(\w+)", lambda match: str(names[match[1]]), line))
        elif block := str(names[alone[2]]):
            lines.append("\n".join(alone[1] + inner for inner in block.split("\n")))
    return "\n".join(lines)


def load(how: str, address: str) -> str:
    """A read of the matrix: `__ldg` keeps it in the caches, `__ldcs` streams it past x."""
    return f"__{how}({address})"


def dot(start: str, step: int, unroll: int, how: str, element_type: ElementType, base: str = "") -> str:
    """Adds values[j] * x[col_indices[j]] for j = start, start + step, ... < end to `sum`.

    With unroll > 1 a batch's loads are all issued before the first is used; the last batch repeats the row's last
    nonzero with value zero, so that there is no slow remainder loop.
    """
    if unroll == 1:
        return fill(
            """
for (int j = $start; j < end; j += $step)
  sum += $value * x[$base$col];
""",
            start=start,
            step=step,
            base=base,
            value=load(how, "values + j"),
            col=load(how, "col_indices + j"),
        )
    return fill(
        """
#pragma unroll 1
for (int j = $start; j < end; j += $stride) {
  $batch
  #pragma unroll
  for (int u = 0; u < $unroll; u++) sum += value[u] * x[$column];
}
""",
        start=start,
        stride=step * unroll,
        batch=batch(step, unroll, how, element_type),
        unroll=unroll,
        column=f"{base}col[u]",
    )


def batch(step: int, unroll: int, how: str, element_type: ElementType) -> str:
    """Loads `col[unroll]` and `value[unroll]` from j, j + step, ...; past `end` the last column and zero."""
    return fill(
        """
int col[$unroll];
$T value[$unroll];
#pragma unroll
for (int u = 0; u < $unroll; u++) {
  int k = min(j + u$times, end - 1);
  col[u] = $col;
  value[u] = $value;
  if (j + u$times >= end) value[u] = 0;
}
""",
        unroll=unroll,
        T=scalar(element_type),
        times="" if step == 1 else f" * {step}",
        col=load(how, "col_indices + k"),
        value=load(how, "values + k"),
    )


def warp_sum(lanes: int, name: str = "sum", mask: str = FULL_WARP, lowest: int = 1) -> str:
    """Sums `name` over groups of `lanes` lanes that lie `lowest` apart; nothing for one lane."""
    if lanes == 1:
        return ""
    return (
        "#pragma unroll\n"
        f"for (int step = {lanes * lowest // 2}; step >= {lowest}; step /= 2)"
        f" {name} += __shfl_xor_sync({mask}, {name}, step);"
    )


def block_sum(block: int, target: str, element_type: ElementType, partials: str = "partials") -> str:
    """Sums `sum` over the block and lets thread 0 store it to `target`."""
    if block == 32:
        return f"{warp_sum(32)}\nif (threadIdx.x == 0) {target} = sum;"
    warps = block // 32
    return fill(
        """
$warp_sum
if (threadIdx.x % 32 == 0) $partials[threadIdx.x / 32] = sum;
__syncthreads();
if (threadIdx.x == 0) {
  #pragma unroll
  for (int w = 1; w < $warps; w++) sum += $partials[w];
  $target = sum;
}
""",
        warp_sum=warp_sum(32),
        partials=partials,
        warps=warps,
        target=target,
    )


def zero_output(operation: Operation, num_dense_cols: int) -> Launch:
    """A launch that clears the output, for kernels that add to it atomically."""
    entries = "num_rows" if operation == "spmv" else f"num_rows * {num_dense_cols}"
    grid = "ceil_div(num_rows,256)" if operation == "spmv" else f"ceil_div(num_rows*{num_dense_cols},256)"
    output = "y" if operation == "spmv" else "c"
    body = f"int i = blockIdx.x * 256 + threadIdx.x;\nif (i < {entries}) {output}[i] = 0;"
    return Launch("zero", grid, 256, body)


def _arguments(
    operation: Operation, element_type: ElementType, format_name: str, parameters: Mapping[str, ParameterValue]
) -> str:
    tail = SPMV_TAIL if operation == "spmv" else SPMM_TAIL
    format_ = format_named(format_name)
    arguments = (*HEAD, *format_.arguments(complete_parameters(format_, parameters)), *tail)
    return ", ".join(_declaration(argument.c_type, argument.name, element_type) for argument in arguments)


def _declaration(c_type: str, name: str, element_type: ElementType) -> str:
    concrete = re.sub(r"\bT\b", scalar(element_type), c_type)
    return f"{concrete} __restrict__ {name}" if concrete.endswith("*") else f"{concrete} {name}"


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))
