"""The C++ header of a tuned kernel: builds the storage format from CSR on the host and launches the program.

`cpp/layout.hpp` and one `cpp/<format>.hpp` a format mirror the Python builders array by array (tested against them).
Everything lies in a namespace of the workload's, the device code in an unnamed one: headers of several workloads can be
included together, and one header in several translation units.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from string import Template

import numpy as np

from sparsesmith.domain.directives import ResolvedLaunch
from sparsesmith.domain.formats.format import Argument, ParameterValue, numbers
from sparsesmith.domain.pattern import Pattern
from sparsesmith.domain.program import KernelProgram, parse_program, signature_of
from sparsesmith.domain.tokens import tokenize
from sparsesmith_proto.kernel import DeviceDescription, Workload
from sparsesmith_proto.message import ElementType

_SOURCES = files("sparsesmith.artifacts") / "cpp"
_MULTIPLIER = np.uint64(6364136223846793005)
_ELEMENTS: dict[ElementType, str] = {"float32": "float", "float64": "double"}
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_EXTERN_C = re.compile(r'\bextern\s*"C"\s*(?!\s*\{)')


def workload_name(workload: Workload) -> str:
    """A name for files and namespaces: pattern, operation, element type and, for spmm, the dense columns."""
    columns = "" if workload.operation == "spmv" else f"_{workload.num_dense_cols}"
    return f"{workload.pattern[:12]}_{workload.operation}_{workload.element_type}{columns}"


def cpp_header(program_text: str, workload: Workload, pattern: Pattern, device: DeviceDescription) -> str:
    """The header's text. Launch sizes are those of the pattern and of the device that it was tuned on."""
    program = parse_program(program_text, workload.operation, workload.element_type)
    plan = _plan(program, workload, pattern, device)
    includes, layout_code = _apart((_SOURCES / "layout.hpp").read_text())
    program_includes, device_code = _program_apart(program.source)
    operand, result = ("x", "y") if workload.operation == "spmv" else ("b", "c")
    return Template((_SOURCES / "kernel.hpp.in").read_text()).substitute(
        title=f"Tuned by sparsesmith: {workload.operation} {workload.element_type}, format {program.format.name}.",
        digest=workload.pattern,
        device=device.name,
        architecture=device.architecture,
        name=f"sparsesmith_{workload_name(workload)}",
        includes="\n".join([*includes, *program_includes]),
        device_code=_EXTERN_C.sub("", device_code),
        restores="".join(f"#undef {name}\n" for name in _macros(program.source)),
        element=_ELEMENTS[workload.element_type],
        layout_code=layout_code,
        format_code=(_SOURCES / f"{program.format.name}.hpp").read_text().strip(),
        fingerprint=fingerprint(pattern),
        format=program.format.name,
        parameters=", ".join(cpp_parameter(name, value) for name, value in program.parameters.items()),
        num_dense_cols=workload.num_dense_cols,
        input=operand,
        output=result,
        attributes=_attributes(plan),
        launches=_launches(plan),
    )


def fingerprint(pattern: Pattern) -> int:
    """Polynomial hash modulo 2**64 over shape and index arrays, as `layout.hpp` computes it."""
    shape = np.array([pattern.num_rows, pattern.num_cols], np.int32)
    words = np.concatenate([shape, pattern.row_offsets, pattern.col_indices]).astype(np.uint64) + np.uint64(1)
    powers = np.full(words.size, _MULTIPLIER)
    powers[0] = 1
    return int((words * np.cumprod(powers)).sum(dtype=np.uint64))


def cpp_parameter(name: str, value: ParameterValue) -> str:
    """Whole numbers as they are, lists one by one; a word as a flag: index=u16 becomes index_u16 = 1, i32 0."""
    if isinstance(value, int):
        return f'{{"{name}", {value}}}'
    if name == "widths":
        limits = numbers(value)
        listed = (f'{{"widths_{place}", {limit}}}' for place, limit in enumerate(limits))
        return ", ".join([f'{{"widths_count", {len(limits)}}}', *listed])
    if name == "rows":
        return f'{{"rows", {("natural", "length", "column").index(value)}}}'
    flag = {"index": "u16", "balance": "nnz", "order": "column", "long_rows": "split"}[name]
    return f'{{"{name}_{flag}", {int(value == flag)}}}'


@dataclass(frozen=True)
class _Plan:
    """What to launch, with every size known."""

    sizes: dict[str, int]
    arguments: tuple[Argument, ...]
    launches: tuple[ResolvedLaunch, ...]


def _plan(program: KernelProgram, workload: Workload, pattern: Pattern, device: DeviceDescription) -> _Plan:
    sizes = {
        "num_rows": pattern.num_rows,
        "num_cols": pattern.num_cols,
        "nnz": pattern.nnz,
        "num_dense_cols": workload.num_dense_cols,
        "num_sms": device.num_sms,
        **program.format.build(pattern, program.parameters).sizes,
    }
    arguments = signature_of(program.format, program.parameters, workload.operation, workload.element_type)
    return _Plan(sizes, arguments, tuple(launch.resolve(sizes) for launch in program.launches))


def _apart(code: str) -> tuple[list[str], str]:
    """The #include lines, which must stand outside namespaces, and the rest."""
    return _INCLUDE.findall(code), _INCLUDE.sub("", code).strip()


def _program_apart(source: str) -> tuple[list[str], str]:
    """As `_apart`, of any legal program: comments may hold what looks like an include."""
    numbers = {line.line - 1 for line in tokenize(source).preprocessor if line.name == "include"}
    lines = source.split("\n")
    rest = "\n".join("" if number in numbers else line for number, line in enumerate(lines))
    return [lines[number].strip() for number in sorted(numbers)], rest.strip()


def _macros(source: str) -> list[str]:
    """Macros that the program defines: they must not reach the code of whoever includes the header."""
    defined = (line.tokens[0].text for line in tokenize(source).preprocessor if line.name == "define" and line.tokens)
    return list(dict.fromkeys(defined))


def _launches(plan: _Plan) -> str:
    call = ", ".join(_argument(argument, plan.sizes) for argument in plan.arguments)
    return "".join(_launch(launch, call) for launch in plan.launches)


def _launch(launch: ResolvedLaunch, call: str) -> str:
    extents = f"dim3({_extent(launch.grid)}), dim3({_extent(launch.block)}), {launch.shared_bytes}"
    if launch.dependency == "full":
        return f"    device_code::{launch.kernel}<<<{extents}, stream>>>(\n        {call});\n"
    return f"    launch_programmatic(device_code::{launch.kernel}, {extents}, stream,\n        {call});\n"


def _extent(extent: tuple[int, int, int]) -> str:
    return ", ".join(map(str, extent))


def _attributes(plan: _Plan) -> str:
    """Dynamic shared memory that with the static may exceed 48 KB must be asked for."""
    needs: dict[str, int] = {}
    for launch in plan.launches:
        needs[launch.kernel] = max(launch.shared_bytes, needs.get(launch.kernel, 0))
    return "".join(
        f"    check(cudaFuncSetAttribute(device_code::{kernel}, "
        f"cudaFuncAttributeMaxDynamicSharedMemorySize, {shared_bytes}));\n"
        for kernel, shared_bytes in needs.items()
        if shared_bytes
    )


def _argument(argument: Argument, sizes: dict[str, int]) -> str:
    match argument.role:
        case "size":
            return str(sizes[argument.name])
        case "input" | "output":
            return argument.name
        case "index" | "values" | "scratch":
            return f'buffer<{argument.c_type}>("{argument.name}")'
