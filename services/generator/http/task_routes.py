"""What tasks there are: operations without a matrix, ours and registered ones."""

import json
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from services.generator.http.body_limit import JSON, media_type
from services.generator.http.openapi import json_body, problems
from services.generator.problems import invalid_option
from services.generator.service import Service
from sparsesmith.errors import InvalidOption, NotFound
from sparsesmith.operations import Operand, Operation, operation_named, operations
from sparsesmith.operations.imported.flashinfer import card_of_definition, read_definition, read_workload
from sparsesmith.operations.imported.folder import (
    VARIABLE,
    free_folder,
    imported_folder,
    write_reference,
    write_task,
)
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import element_types_of
from sparsesmith_proto.api import TaskCard, TaskOperand, TaskPage, TaskPosting

router = APIRouter()


@router.get("/v1/tasks", response_model=TaskPage, responses=problems())
async def list_tasks() -> TaskPage:
    """Every task that kernels may be asked for, by name."""
    found = (each for each in operations().values() if not each.takes_matrix)
    return TaskPage(tasks=tuple(sorted(map(task_card, found), key=lambda card: card.name)))


@router.post(
    "/v1/tasks",
    response_model=TaskCard,
    status_code=HTTPStatus.CREATED,
    responses=problems(403, 408, 413, 415),
    openapi_extra=json_body(TaskPosting),
)
async def post_task(request: Request) -> TaskCard:
    """A flashinfer-bench Definition as a task, where the server's settings allow it: its reference is somebody's code,
    which evaluators run in a process of its own. 403 where they do not."""
    service: Service = request.app.state.service
    into = imported_folder()
    if not service.settings.posted_tasks or into is None:
        missing = VARIABLE if service.settings.posted_tasks else "SPARSESMITH_GENERATOR_POSTED_TASKS"
        raise HTTPException(HTTPStatus.FORBIDDEN, f"this server takes no tasks over HTTP ({missing} is not set)")
    if media_type(request.headers) != JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")
    try:
        posting = TaskPosting.model_validate_json(await request.body())
    except ValidationError as error:
        raise invalid_option(error) from error
    return task_card(await run_in_threadpool(_kept, posting, into))


def _kept(posting: TaskPosting, into: Path) -> Operation:
    """Written as it came: nothing of it runs here. Raises InvalidInput, InvalidOption."""
    definition = read_definition(json.dumps(posting.definition), "definition")
    workloads = [read_workload(json.dumps(each), f"workloads.{n}") for n, each in enumerate(posting.workloads)]
    card = card_of_definition(definition, workloads, definition.name).model_copy(update={"posted": True})
    if card.name in operations():
        raise InvalidOption(f"definition.name: there is a task {card.name}", field="definition.name", value=card.name)
    folder = free_folder(into, card.name)
    write_reference(folder, definition.reference, definition.text)
    write_task(folder, card, {"naive": posting.program})
    operations.cache_clear()
    return operation_named(card.name, field="task")


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
    programs = sorted(operation.programs, key=lambda name: name != operation.naive)
    described = operation if isinstance(operation, Task) else None
    return TaskCard(
        name=operation.name,
        version=operation.version,
        formula=operation.formula,
        text="" if described is None else described.text,
        axes=operation.axes,
        operands=tuple(map(_operand, operation.operands)),
        element_types=element_types_of(operation),
        programs=tuple(programs),
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
