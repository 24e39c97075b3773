"""The C++ header of a tuned kernel: builds the storage format from CSR on the host and launches the program.

`cpp/layout.hpp` and one `cpp/<format>.hpp` a format mirror the Python builders array by array (tested against them).
"""

from importlib.resources import files
from string import Template

import numpy as np

from sparsesmith.domain.formats.format import Argument
from sparsesmith.domain.pattern import Pattern
from sparsesmith.domain.program import KernelProgram, parse_program, signature_of
from sparsesmith_proto.kernel import DeviceDescription, Workload

_SOURCES = files("sparsesmith.artifacts") / "cpp"
_MULTIPLIER = np.uint64(6364136223846793005)
_ELEMENTS = {"float32": "float", "float64": "double"}


def cpp_header(program_text: str, workload: Workload, pattern: Pattern, device: DeviceDescription) -> str:
    """The header's text. Launch sizes are those of the pattern and of the device that it was tuned on."""
    program = parse_program(program_text, workload.operation, workload.element_type)
    tag = workload.pattern[:12]
    layout_code = (_SOURCES / "layout.hpp").read_text()
    includes = [line for line in layout_code.splitlines() if line.startswith("#include")]
    body = "\n".join(line for line in layout_code.splitlines() if not line.startswith("#include"))
    operand, result = ("x", "y") if workload.operation == "spmv" else ("b", "c")
    kernels = list(dict.fromkeys(launch.kernel for launch in program.launches))
    return Template((_SOURCES / "kernel.hpp.in").read_text()).substitute(
        title=f"Tuned by sparsesmith: {workload.operation} {workload.element_type}, format {program.format.name}.",
        digest=workload.pattern,
        device=device.name,
        architecture=device.architecture,
        tag=tag,
        includes="\n".join(includes),
        renames="\n".join(f"#define {name} sparsesmith_{tag}_{name}" for name in kernels),
        device_code=program.source.strip(),
        restores="\n".join(f"#undef {name}" for name in kernels),
        element=_ELEMENTS[workload.element_type],
        layout_code=body.strip(),
        format_code=(_SOURCES / f"{program.format.name}.hpp").read_text().strip(),
        fingerprint=fingerprint(pattern),
        format=program.format.name,
        parameters=", ".join(_parameter(name, value) for name, value in program.parameters.items()),
        input=operand,
        output=result,
        attributes=_attributes(program, tag, workload, pattern, device),
        launches=_launches(program, tag, workload, pattern, device),
    )


def fingerprint(pattern: Pattern) -> int:
    """Polynomial hash modulo 2**64 over shape and index arrays, as `layout.hpp` computes it."""
    shape = np.array([pattern.num_rows, pattern.num_cols], np.int32)
    words = np.concatenate([shape, pattern.row_offsets, pattern.col_indices]).astype(np.uint64) + np.uint64(1)
    powers = np.full(words.size, _MULTIPLIER)
    powers[0] = 1
    return int((words * np.cumprod(powers)).sum(dtype=np.uint64))


def _parameter(name: str, value: int | str) -> str:
    """Whole numbers as they are; a word as a flag: index=u16 becomes index_u16 = 1, index=i32 index_u16 = 0."""
    if isinstance(value, int):
        return f'{{"{name}", {value}}}'
    flag = {"index": "u16", "balance": "nnz"}[name]
    return f'{{"{name}_{flag}", {int(value == flag)}}}'


def _sizes(program: KernelProgram, workload: Workload, pattern: Pattern, device: DeviceDescription) -> dict[str, int]:
    return {
        "num_rows": pattern.num_rows,
        "num_cols": pattern.num_cols,
        "nnz": pattern.nnz,
        "num_dense_cols": workload.num_dense_cols,
        "num_sms": device.num_sms,
        **program.format.build(pattern, program.parameters).sizes,
    }


def _launches(
    program: KernelProgram, tag: str, workload: Workload, pattern: Pattern, device: DeviceDescription
) -> str:
    sizes = _sizes(program, workload, pattern, device)
    arguments = signature_of(program.format, program.parameters, workload.operation, workload.element_type)
    call = ", ".join(_argument(argument, workload, pattern) for argument in arguments)
    lines = []
    for launch in program.launches:
        resolved = launch.resolve(sizes)
        grid, block = (", ".join(map(str, extent)) for extent in (resolved.grid, resolved.block))
        lines.append(
            f"    sparsesmith_{tag}_{launch.kernel}<<<dim3({grid}), dim3({block}), {resolved.shared_bytes}, stream>>>({call});\n"
        )
    return "".join(lines)


def _attributes(
    program: KernelProgram, tag: str, workload: Workload, pattern: Pattern, device: DeviceDescription
) -> str:
    """More than 48 KB of dynamic shared memory must be asked for."""
    sizes = _sizes(program, workload, pattern, device)
    needs = {launch.kernel: launch.resolve(sizes).shared_bytes for launch in program.launches}
    return "".join(
        f"    check(cudaFuncSetAttribute(sparsesmith_{tag}_{kernel}, "
        f"cudaFuncAttributeMaxDynamicSharedMemorySize, {shared_bytes}));\n"
        for kernel, shared_bytes in needs.items()
        if shared_bytes > 48 * 1024
    )


def _argument(argument: Argument, workload: Workload, pattern: Pattern) -> str:
    known = {
        "num_rows": str(pattern.num_rows),
        "num_cols": str(pattern.num_cols),
        "nnz": str(pattern.nnz),
        "num_dense_cols": str(workload.num_dense_cols),
    }
    if argument.name in known:
        return known[argument.name]
    match argument.role:
        case "size":
            return f'size("{argument.name}")'
        case "input" | "output":
            return argument.name
        case "index" | "values" | "scratch":
            c_type = argument.c_type.replace("T*", "Element*")
            return f'buffer<{c_type}>("{argument.name}")'
