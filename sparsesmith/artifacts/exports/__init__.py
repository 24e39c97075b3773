"""Answers for imported tasks in the formats of the suites that they came from: Python that loads machine code through
the driver, without nvcc and without this package.

    flashinfer-bench    a Solution, as JSON
    kernelbench         a module with `ModelNew`
"""

import base64
import json
from collections.abc import Callable
from importlib.resources import files
from string import Template
from textwrap import wrap
from typing import Any

from sparsesmith.artifacts.cpp_header import workload_name
from sparsesmith.cuda.nvrtc import compile_cubin
from sparsesmith.errors import Conflict
from sparsesmith.formats.format import EMPTY_LAYOUT, Argument
from sparsesmith.operations import Problem
from sparsesmith.operations.imported.card import Card, ImportedOperand
from sparsesmith.operations.imported.constants import text_with_constants
from sparsesmith.operations.imported.folder import DEFINITION, REFERENCE
from sparsesmith.operations.imported.task import ImportedTask
from sparsesmith.program.binding import BoundProgram, bind
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import parse_program
from sparsesmith_proto.api import KernelReport, TunedAnswer
from sparsesmith_proto.kernel import DeviceDescription, Workload

Compile = Callable[[str, str], bytes]
"""Source and architecture: machine code."""

_SOURCE = files("sparsesmith.artifacts.exports") / "kernel.py.in"
_CUBIN_WIDTH = 112

_RUN = '''

def run(*given):
    """In the order of the definition: inputs, then the tensors that results are written into."""
    found = _kernel(dict(zip(INPUTS, given)))
    for name, target in zip(OUTPUTS, given[len(INPUTS):]):
        target.copy_(found[name])
'''

_MODEL = '''

# The problem as it came -------------------------------------------------------------------------
$reference

# The kernel in its place ------------------------------------------------------------------------
class ModelNew(Model):
    """Its parameters are Model's own."""

    def forward(self, *given):
        held = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        found = _kernel({**dict(zip(INPUTS, given)), **{name: held[whole] for name, whole in $parameters.items()}})
        return $result
'''


def exported(report: KernelReport, compiled: Compile = compile_cubin) -> tuple[str, str]:
    """File name and text, in the format of the suite that the task came from.

    Raises Conflict where the task was not imported or no program was found, NvrtcNotFound, InvalidProgram.
    """
    problem = Problem(report.workload)
    task = problem.operation
    if not isinstance(task, ImportedTask):
        raise Conflict(
            f"{task.name} was not imported: a kernel goes back to the suite that its task came from",
            field="task",
            value=task.name,
        )
    if not isinstance(report.answer, TunedAnswer):
        raise Conflict("nothing faster was found: there is no program to export", field="answer")
    return exported_program(task, problem, report.answer.best.candidate.program, report.device, compiled)


def exported_program(
    task: ImportedTask, problem: Problem, text: str, device: DeviceDescription, compiled: Compile = compile_cubin
) -> tuple[str, str]:
    """As `exported`, of a program that was found for the task on a device."""
    program = parse_program(extract_program(text), task.name, problem.element_type)
    plan = bind(program, EMPTY_LAYOUT, problem, device.num_sms)
    code = compiled(program.source, device.architecture)
    match task.card.origin:
        case "flashinfer-bench":
            return _solution(task, problem.workload, device, _module(task.card, device, plan, code, _RUN))
        case "kernelbench":
            name = f"{workload_name(problem.workload)}.py"
            return name, _module(task.card, device, plan, code, _model(task))


def _module(card: Card, device: DeviceDescription, plan: BoundProgram, code: bytes, entry: str) -> str:
    launches = [
        (each.kernel, each.grid, each.block, each.shared_bytes, each.dependency != "full") for each in plan.launches
    ]
    lines = "\n".join(f'    b"{line}"' for line in wrap(base64.b64encode(code).decode(), _CUBIN_WIDTH))
    return Template(_SOURCE.read_text()).substitute(
        title=card.formula,
        device=device.name,
        architecture=device.architecture,
        launches=repr(launches),
        arguments=repr([_argument(each, plan) for each in plan.arguments]),
        inputs=_arrays(card, plan, "input"),
        outputs=_arrays(card, plan, "output"),
        cubin=lines,
        entry=entry,
    )


def _argument(argument: Argument, plan: BoundProgram) -> tuple[str, int | str]:
    match argument.role:
        case "size":
            return "size", plan.sizes[argument.name]
        case "scratch":
            return "scratch", plan.own_scratch[argument.name]
        case _:
            return "array", argument.name


def _arrays(card: Card, plan: BoundProgram, role: str) -> str:
    told = (_array(each, card, plan) for each in card.operands if each.role == role)
    return "{" + ", ".join(told) + "}"


def _array(operand: ImportedOperand, card: Card, plan: BoundProgram) -> str:
    shape = operand.shape if operand.shape is not None else tuple(plan.sizes[axis] for axis in operand.axes)
    in_kernels = card.element_type if operand.is_floating else "int32"
    return f"{operand.name!r}: ({shape!r}, torch.{in_kernels}, torch.{operand.given})"


def _model(task: ImportedTask) -> str:
    operands = task.card.operands
    parameters = {each.name: each.original for each in operands if each.is_parameter}
    results = [f"found[{each.name!r}]" for each in operands if each.role == "output"]
    return Template(_MODEL).substitute(
        reference=text_with_constants(
            (task.folder / REFERENCE).read_text(encoding="utf-8"), task.card.constants
        ).strip(),
        parameters=repr(parameters),
        result=results[0] if len(results) == 1 else f"({', '.join(results)})",
    )


def _solution(task: ImportedTask, workload: Workload, device: DeviceDescription, module: str) -> tuple[str, str]:
    definition: dict[str, Any] = json.loads((task.folder / DEFINITION).read_text(encoding="utf-8"))
    sizes = ", ".join(f"{name}={size}" for name, size in workload.axes.items())
    solution = {
        "name": f"sparsesmith_{workload_name(workload)}",
        "definition": definition["name"],
        "author": "sparsesmith",
        "description": f"Tuned for {sizes or 'its sizes'} on {device.name}; other sizes are refused.",
        "spec": {
            "language": "python",
            "target_hardware": [device.name],
            "entry_point": "main.py::run",
            "dependencies": ["torch"],
            "destination_passing_style": True,
        },
        "sources": [{"path": "main.py", "content": module}],
    }
    return f"{solution['name']}.json", json.dumps(solution, indent=2) + "\n"
