"""The C++ header of a tuned kernel: builds the storage format from CSR on the host and launches the program.

`cpp/layout.hpp` and one `cpp/<format>.hpp` a format mirror the Python builders array by array (tested against them).
Everything lies in a namespace of the workload's, the device code in an unnamed one: headers of several workloads can be
included together, and one header in several translation units.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from string import Template

import numpy as np

from sparsesmith.artifacts.device_constants import with_device_constants
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.elements import c_type, sum_c_type
from sparsesmith.formats.format import Argument, Format, NumberList, Parameters, ParameterValue, numbers
from sparsesmith.formats.values.compressed import Compressed, build_layout
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32, RowDictionary, ValueStorage
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations import Problem, Sizes, operation_named
from sparsesmith.program.binding import BoundProgram, bind
from sparsesmith.program.directives import ResolvedLaunch
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith.program.restrictions.tokens import tokenize
from sparsesmith_proto.kernel import DeviceDescription, Workload

_SOURCES = files("sparsesmith.artifacts") / "cpp"
_MULTIPLIER = np.uint64(6364136223846793005)
_NEW_VALUES_NOTE = "//   kernel.set_values(new_values);        // host, CSR order: same pattern, new values"
_FIXED_NOTE = "// Valid for the values that it was tuned with only: the constructor refuses any other."
_CHECK = Template(
    "if (values_fingerprint(values, nnz_) != ${fingerprint}ull)\n"
    '  throw std::runtime_error("sparsesmith: the kernel is valid for the values that it was tuned with only");'
)
_UPLOAD_ENCODED = (
    "  void upload_encoded(const Encoded& encoded) {\n"
    "    for (const auto& [name, bytes] : encoded) upload(name, bytes.data(), bytes.size());\n"
    "  }\n"
)
_IN_PLACE = (
    "if (layout_.value_sources.empty()) {\n"
    '  upload("values", values, std::size_t(nnz_) * sizeof(Element));\n'
    "  return;\n"
    "}"
)
_PACK = (
    "std::vector<Element> packed(layout_.value_sources.empty() ? nnz_ : layout_.value_sources.size());\n"
    "for (std::size_t slot = 0; slot < packed.size(); ++slot) {\n"
    "  const int source = layout_.value_sources.empty() ? static_cast<int>(slot) : layout_.value_sources[slot];\n"
    "  packed[slot] = source < 0 ? Element(Sum(0)) : unsigned_zero(values[source]);\n"
    "}"
)
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_EXTERN_C = re.compile(r'\bextern\s*"C"\s*(?!\s*\{)')


def workload_name(workload: Workload) -> str:
    """A name for files and namespaces: pattern, operation, element type and, where it has them, the dense columns and
    axes; of a task without its pattern."""
    axes = "".join(f"_{name}{size}" for name, size in workload.axes.items())
    if workload.pattern is None:
        return f"{workload.operation}_{workload.element_type}{axes}"
    columns = f"_{workload.num_dense_cols}" if "num_dense_cols" in operation_named(workload.operation).axes else ""
    values = "" if workload.values is None else f"_values_{workload.values[:12]}"
    return f"{workload.pattern[:12]}_{workload.operation}_{workload.element_type}{columns}{axes}{values}"


def format_code(name: str) -> str:
    """The builder of a format, with what it needs beside `layout.hpp`."""
    text = (_SOURCES / f"{name}.hpp").read_text()
    return (_SOURCES / "numbering.hpp").read_text() + "\n" + text if "numbered_by(" in text else text


def cpp_header(
    program_text: str,
    workload: Workload,
    pattern: Pattern,
    device: DeviceDescription,
    values: FixedValues | None = None,
) -> str:
    """The header's text. Launch sizes are those of the pattern and of the device that it was tuned on.

    `values`: those that the workload fixes, where it does. Raises InvalidProgram where the program needs them.
    """
    program = parse_program(program_text, workload.operation, workload.element_type)
    layout = build_layout(program.format, program.parameters, pattern, values)
    plan = bind(program, layout, Problem(workload, pattern, values).unscaled, device.num_sms)
    includes, layout_code = _apart((_SOURCES / "layout.hpp").read_text())
    program_includes, device_code = program_apart(program.source)
    (operand,), (result,) = plan.names("input"), plan.names("output")
    return Template((_SOURCES / "kernel.hpp.in").read_text()).substitute(
        title=f"Tuned by sparsesmith: {workload.operation} {workload.element_type}, format {program.format.name}.",
        digest=workload.pattern,
        device=device.name,
        architecture=device.architecture,
        toolchain=device.toolchain,
        options=" ".join(CODE_OPTIONS),
        name=f"sparsesmith_{workload_name(workload)}",
        includes="\n".join([*includes, *program_includes]),
        device_code=without_extern_c(device_code),
        restores="".join(f"#undef {name}\n" for name in macros(program.source)),
        element=c_type(workload.element_type),
        sum=sum_c_type(workload.element_type),
        layout_code=layout_code,
        format_code=format_code(program.format.name).strip(),
        fingerprint=fingerprint(pattern),
        format=program.format.name,
        parameters=cpp_parameters(program.format, layout_parameters(program)),
        new_values=_FIXED_NOTE if values else _NEW_VALUES_NOTE,
        values_code=f"{(_SOURCES / 'values.hpp').read_text().strip()}\n\n" if values else "",
        set_values=_set_values(program, values),
        upload_encoded=_UPLOAD_ENCODED if isinstance(program.format, Compressed) else "",
        num_dense_cols=workload.num_dense_cols,
        input=operand,
        output=result,
        own_scratch=own_scratch(plan),
        attributes=attributes(plan),
        launches=launches(plan),
    )


def fingerprint(pattern: Pattern) -> int:
    """Polynomial hash modulo 2**64 over shape and index arrays, as `layout.hpp` computes it."""
    shape = np.array([pattern.num_rows, pattern.num_cols], np.int32)
    words = np.concatenate([shape, pattern.row_offsets, pattern.col_indices]).astype(np.uint64) + np.uint64(1)
    powers = np.full(words.size, _MULTIPLIER)
    powers[0] = 1
    return int((words * np.cumprod(powers)).sum(dtype=np.uint64))


def values_fingerprint(values: FixedValues) -> int:
    """Polynomial hash modulo 2**64 over the bits of the values, as `values.hpp` computes it."""
    words = values.bits.astype(np.uint64) + np.uint64(1)
    powers = np.full(words.size, _MULTIPLIER)
    powers[0] = 1
    return int((words * np.cumprod(powers)).sum(dtype=np.uint64))


def layout_parameters(program: KernelProgram) -> Mapping[str, ParameterValue]:
    """Those that the format is built with."""
    match program.format:
        case Compressed() as format_:
            return format_.layout_parameters(program.parameters)
        case _:
            return program.parameters


def _set_values(program: KernelProgram, values: FixedValues | None) -> str:
    """The body of the member function."""
    lines = [] if values is None else [_CHECK.substitute(fingerprint=values_fingerprint(values))]
    match program.format:
        case Compressed(storage=storage):
            lines += [_PACK, f"upload_encoded({_encoder(storage)}(packed, layout_, num_rows_));"]
        case _:
            lines += [_IN_PLACE, _PACK, 'upload("values", packed.data(), packed.size() * sizeof(Element));']
    return "".join(f"    {line}\n" for text in lines for line in text.split("\n"))


def _encoder(storage: ValueStorage) -> str:
    """The function of `values.hpp`."""
    code_types = {"u8": "std::uint8_t", "u16": "std::uint16_t"}
    match storage:
        case Dictionary(code=code):
            return f"encode_dictionary<{code_types[code]}>"
        case RowDictionary(code=code):
            return f"encode_rows<{code_types[code]}>"
        case Constant():
            return "encode_constant"
        case Float32():
            return "encode_float32"


def cpp_parameters(format_: Format, parameters: Parameters) -> str:
    """The initialisers of the builder's `Parameters`, by what the format declares: numbers as they are, lists one by
    one, words as flags (index=u16 becomes index_u16)."""
    entries: dict[str, int] = {}
    for name, spec in format_.parameters.items():
        value = parameters[name]
        if isinstance(value, int):
            entries[name] = value
        elif isinstance(spec, NumberList):
            listed = numbers(value)
            entries |= {f"{name}_count": len(listed), **{f"{name}_{place}": each for place, each in enumerate(listed)}}
        else:
            entries[f"{name}_{value}"] = 1
    return ", ".join(f'{{"{name}", {value}}}' for name, value in entries.items())


def _apart(code: str) -> tuple[list[str], str]:
    """The #include lines, which must stand outside namespaces, and the rest."""
    return _INCLUDE.findall(code), _INCLUDE.sub("", code).strip()


def without_extern_c(device_code: str) -> str:
    """Kernels of an unnamed namespace have no C names."""
    return _EXTERN_C.sub("", device_code)


def program_apart(source: str) -> tuple[list[str], str]:
    """As `_apart`, of any legal program as nvcc takes it: comments may hold what looks like an include."""
    source = with_device_constants(source)
    numbers = {line.line - 1 for line in tokenize(source).preprocessor if line.name == "include"}
    lines = source.split("\n")
    rest = "\n".join("" if number in numbers else line for number, line in enumerate(lines))
    return [lines[number].strip() for number in sorted(numbers)], rest.strip()


def macros(source: str) -> list[str]:
    """Macros that the program defines: they must not reach the code of whoever includes the header."""
    defined = (line.tokens[0].text for line in tokenize(source).preprocessor if line.name == "define" and line.tokens)
    return list(dict.fromkeys(defined))


def launches(plan: BoundProgram) -> str:
    """Statements."""
    call = ", ".join(_argument(argument, plan.sizes) for argument in plan.arguments)
    return "".join(_launch(launch, call) for launch in plan.launches)


def _launch(launch: ResolvedLaunch, call: str) -> str:
    extents = f"dim3({_extent(launch.grid)}), dim3({_extent(launch.block)}), {launch.shared_bytes}"
    if launch.dependency == "full":
        return f"    device_code::{launch.kernel}<<<{extents}, stream>>>(\n        {call});\n"
    return f"    launch_programmatic(device_code::{launch.kernel}, {extents}, stream,\n        {call});\n"


def _extent(extent: tuple[int, int, int]) -> str:
    return ", ".join(map(str, extent))


def own_scratch(plan: BoundProgram) -> str:
    """What the program asks for beside its format's."""
    return "".join(f'    upload("{name}", nullptr, {num_bytes});\n' for name, num_bytes in plan.own_scratch.items())


def attributes(plan: BoundProgram) -> str:
    """Dynamic shared memory that with the static may exceed 48 KB must be asked for."""
    return "".join(
        f"    check(cudaFuncSetAttribute(device_code::{kernel}, "
        f"cudaFuncAttributeMaxDynamicSharedMemorySize, {shared_bytes}));\n"
        for kernel, shared_bytes in plan.shared_bytes.items()
        if shared_bytes
    )


def _argument(argument: Argument, sizes: Sizes) -> str:
    match argument.role:
        case "size":
            return str(sizes[argument.name])
        case "input" | "inout" | "output":
            return argument.name
        case "index" | "values" | "scratch":
            return f'buffer<{argument.c_type}>("{argument.name}")'
