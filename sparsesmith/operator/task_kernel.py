"""What `tune_task` returns: a task with its tuned kernel, to be called with arrays."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.artifacts.launcher import is_torch, like, tensor_of
from sparsesmith.artifacts.task_launcher import TaskLauncher, results_of
from sparsesmith.errors import InvalidInput, Unavailable
from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.operations.texts import with_element_type
from sparsesmith.operator.arrays import check_shape, kind_of, real_array
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer


class TaskKernel:
    """A task of fixed sizes. Without CuPy and a GPU it is computed on the host, in float64, as its checks do."""

    def __init__(self, report: KernelReport) -> None:
        """Raises InvalidOption for a task that is not known here."""
        self.report = report
        """What was measured."""
        self._problem = Problem(report.workload)
        self._launcher: TaskLauncher | None = None

    @property
    def program(self) -> str:
        """The kernel program: the fastest that was found, or the task's own naive one where none is faster."""
        match self.report.answer:
            case TunedAnswer(best=best):
                return extract_program(best.candidate.program)
            case LibraryAnswer():
                operation = self._problem.operation
                return with_element_type(operation.programs[operation.naive], self._problem.element_type)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The result, of the kind of the first array; several as a tuple in the order of the task's operands.

        Inputs in the order of the task's operands, or by their names: NumPy, CuPy or torch arrays in the shapes that
        the axes say. What the task changes in place is copied first: the array that was given stays as it is. Raises
        InvalidInput naming the operand.
        """
        given = self._by_name(inputs, named)
        first = next(iter(given.values()), np.empty(0))
        found = self._found(given, first)
        results = tuple(found[operand.name] for operand in results_of(self._problem))
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self._problem.sizes.items())
        return f"<TaskKernel {self._problem.workload.operation}, {sizes}, {self._problem.element_type}>"

    def _by_name(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        operands = operands_with_role(self._problem.operation, "input", "inout")
        names = [operand.name for operand in operands]
        given = dict(zip(names, inputs, strict=False)) | dict(named)
        if len(inputs) + len(named) != len(names) or set(given) != set(names):
            raise InvalidInput(
                f"{self._problem.workload.operation} takes {', '.join(names)}: given are {len(inputs)} in order and "
                f"{', '.join(named) or 'none'} by name",
                field="inputs",
                value=len(inputs) + len(named),
                limit=", ".join(names),
            )
        return {operand.name: self._checked(operand, given[operand.name]) for operand in operands}

    def _checked(self, operand: Operand, given: Any) -> Any:
        array = real_array(given, operand.name)
        check_shape(array, operand.name, [operand.shape(self._problem.sizes)])
        return array

    def _found(self, given: Mapping[str, Any], first: Any) -> dict[str, Any]:
        try:
            self._launcher = self._launcher or TaskLauncher(self.program, self._problem)
        except Unavailable as error:
            if kind_of(first) == "cupy" or getattr(first, "is_cuda", False):
                raise
            warnings.warn(f"computed on the host: {error.message}", RuntimeWarning, stacklevel=3)
            return {name: tensor_of(array) if is_torch(first) else array for name, array in self._on_host(given)}
        return {name: like(first, array) for name, array in self._launcher(given).items()}

    def _on_host(self, given: Mapping[str, Any]) -> list[tuple[str, npt.NDArray[Any]]]:
        """What the task's checks expect, in the types of its results."""
        problem = self._problem
        inputs = {
            operand.name: np.ascontiguousarray(given[operand.name], operand.array_type(problem.element_type))
            for operand in operands_with_role(problem.operation, "input", "inout")
        }
        right = problem.operation.expect(problem, inputs)
        return [
            (each.name, right[each.name].reference.astype(each.array_type(problem.element_type)))
            for each in results_of(problem)
        ]
