"""What tasks there are: operations without a matrix, ours and registered ones."""

from difflib import get_close_matches

from fastapi import APIRouter

from services.generator.http.openapi import problems
from sparsesmith.errors import NotFound
from sparsesmith.operations import Operand, Operation, operations
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import element_types_of
from sparsesmith_proto.api import TaskCard, TaskOperand, TaskPage

router = APIRouter()


@router.get("/v1/tasks", response_model=TaskPage, responses=problems())
async def list_tasks() -> TaskPage:
    """Every task that kernels may be asked for, by name."""
    found = (each for each in operations().values() if not each.takes_matrix)
    return TaskPage(tasks=tuple(sorted(map(task_card, found), key=lambda card: card.name)))


@router.get("/v1/tasks/{name}", response_model=TaskCard, responses=problems(404))
async def show_task(name: str) -> TaskCard:
    """What a task computes, its sizes and its operands; 404 for another name, with the nearest."""
    operation = operations().get(name)
    if operation is None or operation.takes_matrix:
        raise unknown_task(name)
    return task_card(operation)


def unknown_task(name: str) -> NotFound:
    """As `operation_named` says it, of what has no matrix."""
    tasks = [each.name for each in operations().values() if not each.takes_matrix]
    near = get_close_matches(name, tasks, n=3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    return NotFound(f"task {name!r} is unknown{hint}", field="task", value=name, limit=", ".join(tasks))


def task_card(operation: Operation) -> TaskCard:
    """What others are told of a task."""
    others = [name for name in operation.programs if name != operation.naive]
    described = operation if isinstance(operation, Task) else None
    return TaskCard(
        name=operation.name,
        version=operation.version,
        formula=operation.formula,
        text="" if described is None else described.text,
        axes=operation.axes,
        operands=tuple(map(_operand, operation.operands)),
        element_types=element_types_of(operation),
        programs=(operation.naive, *others),
        sizes=() if described is None else tuple(dict(axes) for axes in described.published),
    )


def _operand(operand: Operand) -> TaskOperand:
    return TaskOperand.model_validate(
        {
            "name": operand.name,
            "role": operand.role,
            "axes": operand.axes,
            "dtype": operand.dtype,
            "meaning": operand.meaning,
        }
    )
