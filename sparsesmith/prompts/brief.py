"""What a text model is told of a problem before it writes: the operation in words and numbers, what counts as right,
the contract of programs, the device, and the plainest program as a start."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from sparsesmith.cuda.occupancy import REGISTERS, multiprocessor
from sparsesmith.elements import ELEMENTS, c_type
from sparsesmith.operations import Operand, Operation, Problem, operation_named
from sparsesmith.operations.draws import GENERAL
from sparsesmith.operations.operation import Expected, Judging
from sparsesmith.operations.sums import TOLERANCES
from sparsesmith.operations.task import Task, baseline_of
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.directives import MAX_LAUNCHES
from sparsesmith.program.scratch import TYPE_BYTES
from sparsesmith.program.signature import task_head
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import Architecture, ElementType

SEED = 0
"""Of the trial draw that tells how far results may be off, and of the rows of a matrix that are shown."""


@dataclass(frozen=True)
class Gpu:
    """The device that is written for."""

    architecture: Architecture
    name: str = ""
    """Empty: not known."""
    num_sms: int | None = None
    copy_bandwidth_gbs: float | None = None
    """Read plus written, in 1e9 bytes a second."""


_CONTRACT = """\
The program is one .cu text: directive lines that begin with //@, then device code for NVRTC (C++17). No host code, no
main, no kernel launches from the device, no clocks, no printf, no malloc, no state that outlives a launch.
Directives:
//@ task {name}
//@ launch KERNEL grid=X[,Y[,Z]] block=X[,Y[,Z]] [shared=BYTES]
//@ scratch NAME = EXPRESSION [TYPE]
//@ tune NAME = VALUE VALUE ...
There is one task line and one to {launches} launch lines, which run in order: a launch sees all that the ones before
it wrote, and there is no other barrier between blocks. Expressions use integers, the sizes {sizes}, num_sms, + - * //,
ceil_div(a,b), min and max. A scratch line gives every kernel an array of so many T (or TYPE: {types}), garbage at the
start, as an argument TYPE* NAME behind the others. A tune line names a number that is found by measuring: NAME stands
for each of its values in launch lines and in the code; the first is tried first.
Every launched kernel is extern "C" __global__ void and takes exactly these arguments, in this order, then its scratch:
{arguments}
T stands for {element}.{header} Outputs hold garbage at the start: every element must be written, each time anew.
"""


def brief(problem: Problem, gpu: Gpu) -> str:
    """The whole of it. Equal for equal problems and devices."""
    if problem.matrix is None:
        parts = [_task(problem), _right(problem), _contract(problem), _device(gpu), _naive(problem.workload)]
    else:
        prompt = Prompt(encoder="text", sample_seed=SEED, architecture=gpu.architecture)
        parts = [text_prompt(problem.pattern, problem.workload, prompt), _sums_right(problem), _device(gpu)]
    return "\n".join([*parts, *_asked(problem.workload)])


def _task(problem: Problem) -> str:
    operation = problem.operation
    formula = operation.formula.format(**problem.sizes)
    lines = [f"Write one CUDA kernel program that computes {operation.name}: {formula}", *_in_words(operation)]
    lines.append("Sizes: " + ", ".join(f"{name}={size}" for name, size in problem.sizes.items()))
    lines.append("Arrays, row-major:")
    lines += [_described(operand, problem) for operand in problem.arrays]
    return "\n".join(lines) + "\n"


def _in_words(operation: Operation) -> Iterator[str]:
    if isinstance(operation, Task) and operation.text:
        yield operation.text


def _described(operand: Operand, problem: Problem) -> str:
    kinds = {"input": "read only", "output": "written", "inout": "changed in place"}
    element = operand.array_type(problem.element_type)
    axes = " x ".join(f"{name}={problem.sizes[name]}" for name in operand.axes) or "one number"
    meaning = f": {operand.meaning}" if operand.meaning else ""
    return f"- {operand.name}, {element} [{axes}], {kinds.get(operand.role, operand.role)}{meaning}"


def _right(problem: Problem) -> str:
    """How far results may be off, as the task itself says it of a small draw."""
    operation = problem.operation
    lines = ["What counts as right: results are compared with the same in float64, for several kinds of random inputs."]
    if isinstance(operation, Judging):
        lines.append(
            "Any output that solves the problem is right: residuals are judged, each against a bound of rounding."
        )
    else:
        lines += [f"- {name}: {words}" for name, words in _tolerances(operation.name, problem.element_type)]
    return "\n".join(lines) + "\n"


@cache
def _tolerances(name: str, element_type: ElementType) -> tuple[tuple[str, str], ...]:
    operation = operation_named(name)
    trial = Problem(Workload(operation=name, element_type=element_type, axes=dict(operation.trial)))
    drawn = next(iter((operation.draws or GENERAL).values()))(trial, np.random.default_rng(SEED))
    types = {operand.name: operand.array_type(element_type) for operand in operation.operands}
    inputs = {each: np.asarray(array).astype(types[each]) for each, array in drawn.items()}
    return tuple((each, _tolerance(found)) for each, found in operation.expect(trial, inputs).items())


def _tolerance(expected: Expected) -> str:
    if not np.any(expected.bound > 0):
        return "exact, every entry"
    shares = expected.bound / np.maximum(expected.magnitude, np.finfo(np.float64).tiny)
    usual = float(np.median(shares[expected.magnitude > 0])) if np.any(expected.magnitude > 0) else 0.0
    return f"every entry within about {usual:.2g} times the sum of the sizes of the terms that it is made of"


def _sums_right(problem: Problem) -> str:
    share = TOLERANCES[problem.element_type]
    return (
        f"What counts as right: every result within {share:.2g} times the sum of the sizes of its products, "
        f"in any order.\n"
    )


def _contract(problem: Problem) -> str:
    operation, element = problem.operation, ELEMENTS[problem.element_type]
    head = (*task_head(operation), *(operand.argument for operand in operation.operands))
    header = "" if not element.header else f" Write #include <{element.header}> behind the directives; sum in float."
    return _CONTRACT.format(
        name=operation.name,
        launches=MAX_LAUNCHES,
        sizes=", ".join(problem.sizes),
        types=", ".join(TYPE_BYTES),
        arguments=", ".join(
            f"{with_element_type(argument.c_type, problem.element_type)} {argument.name}" for argument in head
        ),
        element=c_type(problem.element_type),
        header=header,
    )


def _device(gpu: Gpu) -> str:
    room = multiprocessor(gpu.architecture)
    told = [f"The GPU: {gpu.name or gpu.architecture}"]
    if gpu.name:
        told.append(f"architecture {gpu.architecture}")
    if gpu.num_sms is not None:
        told.append(f"{gpu.num_sms} multiprocessors")
    told.append(
        f"each with room for {room.warps} warps, {room.blocks} blocks, {REGISTERS} registers and "
        f"{room.shared_bytes >> 10} KiB of shared memory"
    )
    if gpu.copy_bandwidth_gbs is not None:
        told.append(f"copies at {gpu.copy_bandwidth_gbs:.0f} GB/s, read plus written")
    return ", ".join(told) + ".\n"


def _naive(workload: Workload) -> str:
    operation = operation_named(workload.operation)
    name = baseline_of(operation, deterministic=workload.deterministic)
    program = with_element_type(operation.programs[name], workload.element_type)
    return f"A correct but slow program, to start from:\n```cuda\n{program.rstrip()}\n```\n"


def _asked(workload: Workload) -> Iterator[str]:
    if workload.deterministic:
        yield "Equal inputs must give equal bits in every run: no atomics whose order decides a sum.\n"
    yield "Answer with one complete program in a ```cuda block, as fast as you can make it, correct for every input."
