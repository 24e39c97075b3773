"""Tasks: operations without a matrix, made of what they cannot do without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparsesmith.errors import InvalidOption
from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith.operations.operation import Arrays, Drawing, Expected, Floor, Operation, Residual

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Task:
    """Implements the Operation protocol."""

    name: str
    version: int = 1
    formula: str
    text: str = ""
    """For prompts and for people: what it computes in words, shapes and what is open in the formula."""
    axes: tuple[str, ...]
    operands: tuple[Operand, ...]
    right: Callable[[Problem, Arrays], Mapping[str, Expected]]
    """See Operation.expect."""
    flops: Callable[[Sizes], int]
    """Of a correct program that wastes none; a multiply-add counts as two."""
    programs: Mapping[str, str]
    naive: str
    ordered: str = ""
    """The plainest of the programs that give equal bits for equal inputs; empty: the naive one does."""
    trial: Mapping[str, int]
    published: tuple[Mapping[str, int], ...] = ()
    """Axes at which others have measured it, or which stand for its use; the largest last."""
    draws: Mapping[str, Drawing] = field(default_factory=dict)
    unbounded: tuple[str, ...] = ()
    """Inputs of which single entries may be any numbers of the element type, though no draw of it has such."""
    adverse: tuple[str, ...] = ()
    """See DataDependent.adverse."""
    derived: Mapping[str, Callable[[Sizes], int]] = field(default_factory=dict)
    """See Shaping.derived."""
    constraints: Mapping[str, Callable[[Sizes], bool]] = field(default_factory=dict)
    """See Shaping.constraints."""
    header_id: int | None = None
    takes_matrix: bool = False
    sums_products: bool = False

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """See Operation.expect."""
        return self.right(problem, inputs)

    def floor(self, problem: Problem) -> Floor:
        """Every input read once, every output written once, what is changed in place both."""
        return Floor(moved_bytes(problem), self.flops(problem.sizes))


def baseline_of(operation: Operation, *, deterministic: bool) -> str:
    """The name of the program that a task's candidates are compared with. Raises InvalidOption where there is none."""
    if not operation.programs:
        raise InvalidOption(
            f"task {operation.name} has no program that others could be compared with: give one as `sparsesmith tasks "
            "import ... --program FILE`",
            field="task",
            value=operation.name,
        )
    ordered = operation.ordered if isinstance(operation, Task) else ""
    return ordered if deterministic and ordered else operation.naive


@dataclass(frozen=True, kw_only=True)
class JudgedTask(Task):
    """A task whose outputs may differ though all of them are right; implements the Judging protocol as well."""

    judged: Callable[[Problem, Arrays, Arrays], Mapping[str, Residual]]
    """See Judging.residuals."""

    def residuals(self, problem: Problem, inputs: Arrays, outputs: Arrays) -> Mapping[str, Residual]:
        """See Judging.residuals."""
        return self.judged(problem, inputs, outputs)


def moved_bytes(problem: Problem) -> int:
    """Of a program that reads each input once and writes each output once."""
    times = {"input": 1, "output": 1, "inout": 2}
    return sum(
        times.get(operand.role, 0) * operand.num_bytes(problem.sizes, problem.element_type)
        for operand in problem.arrays
    )
