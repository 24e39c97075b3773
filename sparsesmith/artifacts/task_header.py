"""The C++ header of a task's kernel: owns its scratch memory and launches the program for fixed sizes.

As of matrices (`cpp_header`), everything lies in a namespace of the workload's: headers of several can be included
together, and one in several translation units.
"""

from importlib.resources import files
from string import Template

from sparsesmith.artifacts.cpp_header import (
    attributes,
    launches,
    macros,
    own_scratch,
    program_apart,
    without_extern_c,
    workload_name,
)
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.elements import c_type
from sparsesmith.formats.format import EMPTY_LAYOUT
from sparsesmith.operations import Operand, Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import DeviceDescription, Workload

_SOURCE = files("sparsesmith.artifacts") / "cpp" / "task.hpp.in"


def task_header(program_text: str, workload: Workload, device: DeviceDescription) -> str:
    """The header's text. Launch sizes are those of the axes and of the device that it was tuned on."""
    program = parse_program(program_text, workload.operation, workload.element_type)
    problem = Problem(workload)
    plan = bind(program, EMPTY_LAYOUT, problem, device.num_sms)
    includes, device_code = program_apart(program.source)
    return Template(_SOURCE.read_text()).substitute(
        title=f"Tuned by sparsesmith: {workload.operation} {workload.element_type}.",
        formula=" ".join(problem.operation.formula.split()),
        sizes=", ".join(f"{name} {size}" for name, size in problem.sizes.items()),
        device=device.name,
        architecture=device.architecture,
        toolchain=device.toolchain,
        options=" ".join(CODE_OPTIONS),
        name=f"sparsesmith_{workload_name(workload)}",
        call=", ".join(operand.name for operand in problem.arrays),
        shapes="\n".join(f"//   {_told(operand, problem)}" for operand in problem.arrays),
        includes="\n".join(includes),
        device_code=without_extern_c(device_code),
        restores="".join(f"#undef {name}\n" for name in macros(program.source)),
        element=c_type(workload.element_type),
        parameters=", ".join(map(_parameter, problem.arrays)),
        own_scratch=own_scratch(plan),
        attributes=attributes(plan),
        launches=launches(plan),
    )


def _told(operand: Operand, problem: Problem) -> str:
    shape = "".join(f"[{size}]" for size in operand.shape(problem.sizes)) or " one number"
    meaning = f": {' '.join(operand.meaning.split())}" if operand.meaning else ""
    return f"{operand.role} {_element(operand)} {operand.name}{shape}{meaning}"


def _parameter(operand: Operand) -> str:
    constant = "const " if operand.role == "input" else ""
    return f"{constant}{_element(operand)}* {operand.name}"


def _element(operand: Operand) -> str:
    return "Element" if operand.dtype == "T" else "int"
