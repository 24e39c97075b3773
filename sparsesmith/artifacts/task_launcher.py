"""Run a program for a task on the user's own GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsesmith.artifacts.launcher import import_cupy, like, stream_of
from sparsesmith.artifacts.loaded_program import LoadedProgram
from sparsesmith.errors import InvalidInput
from sparsesmith.formats.format import EMPTY_LAYOUT, Argument
from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.program.binding import bind
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload


class TaskLauncher:
    """Of one problem, on the device that is current when it is made."""

    def __init__(self, program: str, problem: Problem) -> None:
        """Raises InvalidProgram, Unavailable without CuPy or a GPU."""
        self._cupy = import_cupy()
        self._device = self._cupy.cuda.Device()
        self._problem = problem
        parsed = parse_program(program, problem.workload.operation, problem.element_type)
        self._bound = bind(parsed, EMPTY_LAYOUT, problem, self._device.attributes["MultiProcessorCount"])
        self._kernels = LoadedProgram(self._cupy, parsed, self._bound)
        self._scratch = {
            buffer.name: self._cupy.empty(buffer.num_bytes, "uint8") for buffer in self._bound.with_role("scratch")
        }

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name, as CuPy arrays; what is changed in place is a copy of what was given.

        `inputs`: by name, of any kind of array, in right shapes. On the current stream of the first one's kind; nothing
        waits.
        """
        first = next(iter(inputs.values()), None)
        with self._device, stream_of(first, self._cupy):
            arrays = {name: self._on_device(given, name) for name, given in inputs.items()}
            for operand in operands_with_role(self._problem.operation, "output"):
                arrays[operand.name] = self._cupy.empty(operand.shape(self._problem.sizes), self._type_of(operand))
            self._kernels.launch(tuple(self._argument(each, arrays) for each in self._bound.arguments))
            return {each.name: arrays[each.name] for each in results_of(self._problem)}

    def _on_device(self, given: Any, name: str) -> Any:
        (operand,) = (each for each in self._problem.arrays if each.name == name)
        array = self._cupy.ascontiguousarray(self._cupy.asarray(given), dtype=self._type_of(operand))
        return array.copy() if operand.role == "inout" else array

    def _type_of(self, operand: Operand) -> "np.dtype[Any]":
        return operand.array_type(self._problem.element_type)

    def _argument(self, argument: Argument, arrays: Mapping[str, Any]) -> Any:
        if argument.role == "size":
            return np.int32(self._bound.sizes[argument.name])
        return self._scratch[argument.name] if argument.role == "scratch" else arrays[argument.name]


class TaskFunction:
    """A program for a task of fixed sizes, called with its arrays: what a downloaded loader gives."""

    def __init__(self, program: str, workload: Workload) -> None:
        """Raises InvalidProgram, InvalidOption for a task that is not known here, Unavailable without CuPy or a GPU."""
        self._problem = Problem(workload)
        self._launcher = TaskLauncher(program, self._problem)

    def __call__(self, *inputs: Any) -> Any:
        """The result, of the kind of the first array; several as a tuple, in the order of the task's operands. What is
        changed in place is copied first. Raises InvalidInput for other shapes, or another number of arrays."""
        found = self._launcher(named_inputs(self._problem, inputs))
        first = inputs[0] if inputs else None
        results = tuple(like(first, found[operand.name]) for operand in results_of(self._problem))
        return results[0] if len(results) == 1 else results


def named_inputs(problem: Problem, inputs: Sequence[Any]) -> dict[str, Any]:
    """In the order of the operands. Raises InvalidInput naming the operand."""
    operands = operands_with_role(problem.operation, "input", "inout")
    if len(inputs) != len(operands):
        names = ", ".join(operand.name for operand in operands)
        raise InvalidInput(
            f"{problem.workload.operation} takes {names}: {len(inputs)} arrays are given",
            field="inputs",
            value=len(inputs),
            limit=len(operands),
        )
    for operand, given in zip(operands, inputs, strict=True):
        expected = operand.shape(problem.sizes)
        if tuple(np.shape(given)) != expected:
            raise InvalidInput(
                f"{operand.name} has shape {tuple(np.shape(given))}: expected {expected}",
                field=operand.name,
                value=tuple(np.shape(given)),
                limit=expected,
            )
    return {operand.name: given for operand, given in zip(operands, inputs, strict=True)}


def results_of(problem: Problem) -> tuple[Operand, ...]:
    """What a task gives: outputs, and what is changed in place, in order."""
    return operands_with_role(problem.operation, "output", "inout")
