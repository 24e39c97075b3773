"""From an HTTP body to an order and its problem: parsed in a thread, bounded, every refusal naming its field."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from services.generator.heap import trim_heap
from services.generator.http.body_limit import JSON, media_type
from services.generator.http.index_lists import PIECE_BYTES, BodyStream
from services.generator.http.reordering import FIELD as REORDER
from services.generator.http.reordering import check_reorder, refuse_for_programs
from services.generator.orders import EvaluationOrder, KernelOrder
from services.generator.problems import invalid_option
from services.generator.settings import GeneratorSettings
from services.generator.writing import Writers
from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidInput, InvalidMatrix, InvalidOption, LimitExceeded
from sparsesmith.matrix.files import MatrixLimits, read_matrix, read_pattern
from sparsesmith.matrix.limits import check_emptiness, check_limit
from sparsesmith.matrix.pattern import Int32Array, Pattern, pattern_from_indices
from sparsesmith.matrix.values import FixedValues, fixed_values, values_of_entries
from sparsesmith.operations import Problem, check_axes, operation_named
from sparsesmith.operations.directions import transposed_problem
from sparsesmith.operations.task import baseline_of
from sparsesmith.operations.texts import check_element_type
from sparsesmith_proto.api import EvaluationOptions, MatrixIndices, TuningOptions
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS

FORM = "multipart/form-data"
MATRIX = "matrix"
FILE = "file"
PROGRAM = "program"
TASK = "task"
OPERATION = "operation"
AXES = "axes"
"""Sizes by name: in a form `axes_rows`."""
NESTED_OPTIONS = {"budget": "Budget", "refine": "Refinement"}
"""Options with fields of their own (in a form `budget_seconds`), and their types."""
MAX_FORM_FIELDS = 32
INDEX_LISTS = ("row_indices", "col_indices")
VALUES = "values"
PART_BYTES = 4 * MAX_PROGRAM_CHARACTERS
"""Of a part of a form that is no file."""
TRIM_BYTES = 2**20
"""After a pattern of this size memory is given back."""

Float64Array = npt.NDArray[np.float64]
Options = TypeVar("Options", TuningOptions, EvaluationOptions)


Ordered = tuple[Options, Problem]
"""A request that is checked to the end."""
Parse = Callable[[], Ordered[Options]]
"""What reads a body that has been received. Blocking."""


class Intake:
    """Reads requests within the service's limits."""

    def __init__(self, settings: GeneratorSettings, writers: Writers) -> None:
        """`writers`: those that a request may name."""
        self._settings = settings
        self._writers = writers
        self._parsing = asyncio.Semaphore(settings.max_parsed_matrices)

    @asynccontextmanager
    async def kernel_order(self, request: Request) -> AsyncIterator[tuple[KernelOrder, Problem]]:
        """The matrix is in memory until the context ends, one of a few at a time."""
        async with self._ordered(request, TuningOptions) as (options, problem):
            self._writers.check(options.refine, problem.workload)
            check_reorder(options, problem)
            use_cache = "no-cache" not in request.headers.get("cache-control", "").lower()
            other = await asyncio.to_thread(_other_direction, options, problem)
            transposed = None if other is None else other.workload
            order = KernelOrder(workload=problem.workload, options=options, use_cache=use_cache, transposed=transposed)
            yield order, problem

    @asynccontextmanager
    async def evaluation_order(self, request: Request) -> AsyncIterator[tuple[EvaluationOrder, Problem]]:
        """As `kernel_order`."""
        async with self._ordered(request, EvaluationOptions) as (options, problem):
            workload, program, budget = problem.workload, options.program, options.budget
            yield EvaluationOrder(workload=workload, program=program, budget=budget, gpu=options.gpu), problem

    @asynccontextmanager
    async def _ordered(self, request: Request, kind: type[Options]) -> AsyncIterator[Ordered[Options]]:
        """A body is received first, however slowly it comes, and has its turn only when it is there."""
        num_bytes = TRIM_BYTES  # Of what is refused nobody knows how much memory it took.
        try:
            async with self._received(request, kind) as parse, self._parsing:
                ordered = await asyncio.to_thread(parse)
                matrix = ordered[1].matrix
                num_bytes = 0 if matrix is None else matrix.num_bytes
                yield ordered
        finally:
            if num_bytes >= TRIM_BYTES:
                await asyncio.to_thread(trim_heap)

    @asynccontextmanager
    async def _received(self, request: Request, kind: type[Options]) -> AsyncIterator[Parse[Options]]:
        """What parses the body, once all of it is there."""
        match media_type(request.headers):
            case "application/json":
                text, lists = await self._received_json(request)
                yield lambda: self._from_json(text, lists, kind)
            case "multipart/form-data":
                async with request.form(max_files=2, max_fields=MAX_FORM_FIELDS, max_part_size=PART_BYTES) as form:
                    fields, upload = await _received_form(form)
                    yield lambda: self._from_form(fields, upload, kind)
            case other:
                raise HTTPException(415, f"content type {other or 'none'!r}: send {JSON} or {FORM}")

    async def _received_json(self, request: Request) -> tuple[bytearray, Mapping[str, npt.NDArray[Any]]]:
        body = BodyStream(MATRIX, INDEX_LISTS, self._settings.max_json_indices, (VALUES,))
        stream, waiting = request.stream(), bytearray()
        try:
            async for chunk in stream:
                waiting += chunk
                if len(waiting) >= PIECE_BYTES:
                    await asyncio.to_thread(body.feed, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(body.feed, bytes(waiting))
        except InvalidInput:
            async for _ in stream:  # So that the client is not cut off before it reads the answer.
                pass
            raise
        return body.finish()

    def _from_json(
        self, text: bytearray, lists: Mapping[str, npt.NDArray[Any]], kind: type[Options]
    ) -> Ordered[Options]:
        fields = _json_object(text, "body")
        matrix, task = fields.pop(MATRIX, None), fields.pop(TASK, None)
        if task is not None:
            given = _task_options(matrix, task, _decoded(fields, "body"))
            return self._task(_options(kind, given, separator="."))
        if matrix is None:
            raise InvalidMatrix("matrix: this field is required (or task, of an operation without one)", field=MATRIX)
        parts = _json_object(matrix, MATRIX)
        for name in INDEX_LISTS:
            _check_was_list(name, parts.pop(name, None), "a list of whole numbers")
        _check_was_values(parts.pop(VALUES, None), given=VALUES in lists)
        try:
            shape = MatrixIndices.model_validate({**_decoded(parts, MATRIX), "row_indices": [], "col_indices": []})
        except ValidationError as error:
            raise invalid_option(error, prefix=(MATRIX,)) from error
        limits = MatrixLimits()
        check_limit(f"{MATRIX}.num_rows", shape.num_rows, limits.max_rows)  # Offsets take memory for every row.
        check_limit(f"{MATRIX}.num_cols", shape.num_cols, limits.max_cols)
        rows, cols, values = lists["row_indices"], lists["col_indices"], lists.get(VALUES)
        check_emptiness(shape.num_rows, shape.num_cols, rows.size, limits, prefix=f"{MATRIX}.")
        given = _decoded(fields, "body")
        pattern = _pattern(shape, rows, cols)
        with _in_matrix():
            summed = None if values is None else values_of_entries(pattern, rows, cols, values)
        options = _options(kind, given, separator=".")
        return self._checked(options, pattern, summed, where=f"{MATRIX}.{VALUES}")

    def _from_form(self, fields: Mapping[str, Any], upload: UploadFile, kind: type[Options]) -> Ordered[Options]:
        pattern, values = self._read_upload(upload, keeps_values=fields.get(VALUES) == "fixed")
        options = _options(kind, _form_options(fields), separator="_")
        return self._checked(options, pattern, values, where=FILE)

    def _checked(
        self, options: Options, pattern: Pattern, given_values: Float64Array | None, *, where: str
    ) -> Ordered[Options]:
        """Values in the order of the pattern, None where the matrix came without; `where` names them in the request."""
        _check_operands(pattern, options, self._settings.max_operand_bytes)
        return options, _asked_direction(options, _problem(options, pattern, _values(options, given_values, where)))

    def _task(self, options: Options) -> Ordered[Options]:
        """Raises InvalidOption, for a task that has no program to compare with, too; LimitExceeded for operands that no
        GPU holds."""
        if options.values != "any":
            raise InvalidOption(
                f"{VALUES}: a task has no matrix whose values could be fixed", field=VALUES, limit="any"
            )
        if isinstance(options, TuningOptions) and options.transposed != "no":
            raise InvalidOption(
                "transposed: a task has no matrix that could be",
                field="transposed",
                value=options.transposed,
                limit="no",
            )
        problem, limit = _problem(options, None, None), self._settings.max_operand_bytes
        baseline_of(problem.operation, deterministic=options.deterministic)
        if problem.operand_bytes > limit:
            axes = ", ".join(f"{name}={size}" for name, size in problem.workload.axes.items())
            raise LimitExceeded(
                f"axes: with {axes} the operands of {options.operation} take {problem.operand_bytes} bytes, at most "
                f"{limit} are taken",
                field="axes",
                value=problem.operand_bytes,
                limit=limit,
            )
        return options, problem

    def _read_upload(self, upload: UploadFile, *, keeps_values: bool) -> tuple[Pattern, Float64Array | None]:
        with tempfile.NamedTemporaryFile(prefix="sparsesmith-upload-") as copy:
            shutil.copyfileobj(upload.file, copy, 2**20)
            copy.flush()
            limits = MatrixLimits(max_file_bytes=self._settings.max_body_bytes, max_nnz=self._settings.max_nnz)
            path, name = Path(copy.name), upload.filename or ""
            return read_matrix(path, name, limits) if keeps_values else (read_pattern(path, name, limits), None)


async def _received_form(form: FormData) -> tuple[dict[str, Any], UploadFile]:
    """The fields and the matrix's file."""
    fields = _given_once(form.multi_items())
    if TASK in fields:
        raise InvalidOption(f"{TASK}: a task is sent as JSON, a form has a matrix file", field=TASK, limit=JSON)
    upload = fields.pop(FILE, None)
    if not isinstance(upload, UploadFile):
        raise InvalidMatrix("file: send the matrix as a file part of this name (.mtx, .mtx.gz or .npz)", field=FILE)
    program = fields.get(PROGRAM)
    if isinstance(program, UploadFile):
        fields[PROGRAM] = _text(await program.read(PART_BYTES + 1))
    return fields, upload


def _options(kind: type[Options], given: Mapping[str, Any], *, separator: str) -> Options:
    """`separator` joins the parts of a nested option's name: "." in JSON, "_" in a form. Raises InvalidOption naming
    the field."""
    if kind is EvaluationOptions and REORDER in given:
        refuse_for_programs()
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise invalid_option(error, separator=separator) from error


def _values(
    options: TuningOptions | EvaluationOptions, given_values: Float64Array | None, where: str
) -> FixedValues | None:
    """Raises InvalidMatrix where values are fixed and were not given or do not fit the element type, InvalidOption
    where they were given and are not fixed."""
    match options.values, given_values:
        case "any", None:
            return None
        case "any", _:
            raise InvalidOption(f"{where}: values are taken only with values=fixed", field=VALUES, value="any")
        case _, None:
            raise InvalidMatrix(f"{where}: values=fixed needs the matrix's values, real numbers", field=where)
        case _, given:
            with _named(where):
                return fixed_values(given, options.element_type)


def _check_operands(pattern: Pattern, options: TuningOptions | EvaluationOptions, limit: int) -> None:
    """Raises LimitExceeded for dense operands that no GPU holds."""
    element_bytes = ELEMENTS[options.element_type].num_bytes
    num_bytes = (pattern.num_rows + pattern.num_cols) * options.num_dense_cols * element_bytes
    if num_bytes > limit:
        raise LimitExceeded(
            f"num_dense_cols: the dense operands take {num_bytes} bytes, at most {limit} are taken",
            field="num_dense_cols",
            value=num_bytes,
            limit=limit,
        )


def _problem(
    options: TuningOptions | EvaluationOptions, pattern: Pattern | None, values: FixedValues | None
) -> Problem:
    """Computes the digests. Raises InvalidOption."""
    operation = operation_named(options.operation)
    if operation.takes_matrix != (pattern is not None):
        raise _wrong_subject(options.operation, takes_matrix=operation.takes_matrix)
    check_axes(operation, options.num_dense_cols, options.axes)
    check_element_type(operation, options.element_type)
    try:
        workload = Workload(
            pattern=None if pattern is None else pattern.digest,
            operation=options.operation,
            element_type=options.element_type,
            num_dense_cols=options.num_dense_cols,
            values=None if values is None else values.digest,
            axes=options.axes,
            deterministic=options.deterministic,
            alpha_beta=options.alpha_beta,
        )
    except ValidationError as error:
        raise invalid_option(error) from error
    return Problem(workload, pattern, values)


def _asked_direction(options: TuningOptions | EvaluationOptions, problem: Problem) -> Problem:
    """That of A^T where it is asked for in the place of A. Raises InvalidOption."""
    if isinstance(options, TuningOptions) and options.transposed == "yes":
        return transposed_problem(problem, options.transposed_storage)
    return problem


def _other_direction(options: TuningOptions, problem: Problem) -> Problem | None:
    """That of A^T where it is asked for beside A. Raises InvalidOption."""
    if options.transposed != "both":
        if options.transposed == "no" and options.transposed_storage != "copy":
            reason = "nothing is transposed (transposed=no)"
            raise InvalidOption(
                f"transposed_storage: {reason}", field="transposed_storage", value="shared", limit="copy"
            )
        return None
    if options.search == "instant":
        reason = "search=instant answers for one direction"
        raise InvalidOption(f"transposed is both: {reason}", field="transposed", value="both", limit="no, yes")
    return transposed_problem(problem, options.transposed_storage)


def _task_options(matrix: msgspec.Raw | None, task: msgspec.Raw, options: dict[str, Any]) -> dict[str, Any]:
    """With the task as operation. Raises InvalidOption where the request is about two things, or no task."""
    for other, given in ((MATRIX, matrix is not None), (OPERATION, OPERATION in options)):
        if given:
            limit = f"{other} or {TASK}"
            raise InvalidOption(f"{other} and {TASK}: both given, one is needed", field=TASK, limit=limit)
    name = _decoded({TASK: task}, "body")[TASK]
    if not isinstance(name, str):
        raise InvalidOption(f"{TASK}: expected a name", field=TASK, limit="a name")
    operation_named(name, field=TASK)
    return {**options, OPERATION: name}


def _wrong_subject(name: str, *, takes_matrix: bool) -> InvalidOption:
    if takes_matrix:
        return InvalidOption(
            f"{TASK}: {name} takes a matrix: send {MATRIX} and {OPERATION}", field=TASK, value=name, limit=MATRIX
        )
    return InvalidOption(
        f"{OPERATION}: {name} takes no matrix: send {TASK} and axes in its place",
        field=OPERATION,
        value=name,
        limit=TASK,
    )


def _json_object(text: bytearray | msgspec.Raw, field: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{field}: expected a JSON object", field=field, limit="a JSON object") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{field}: {error}", field=field, limit="valid JSON in UTF-8") from error


def _decoded(fields: Mapping[str, msgspec.Raw], parent: str) -> dict[str, Any]:
    decoded = {}
    for name, raw in fields.items():
        try:
            decoded[name] = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            field = name if parent == "body" else f"{parent}.{name}"
            raise InvalidInput(f"{field}: {error}", field=field, limit="valid JSON in UTF-8") from error
    return decoded


def _check_was_list(name: str, raw: msgspec.Raw | None, what: str) -> None:
    """Lists were taken out of the body; what is no list still stands there."""
    field = f"{MATRIX}.{name}"
    if raw is None:
        raise InvalidMatrix(f"{field}: this field is required", field=field)
    if bytes(raw) != b"[]":
        raise InvalidMatrix(f"{field}: expected {what}", field=field, limit=what)


def _check_was_values(raw: msgspec.Raw | None, *, given: bool) -> None:
    """As `_check_was_list`; the list may be missing or null."""
    if given or (raw is not None and bytes(raw) != b"null"):
        _check_was_list(VALUES, raw, "a list of numbers")


def _pattern(shape: MatrixIndices, rows: Int32Array, cols: Int32Array) -> Pattern:
    with _in_matrix():
        return pattern_from_indices(shape.num_rows, shape.num_cols, rows, cols)


@contextmanager
def _named(field: str) -> Iterator[None]:
    """The field as it stands in the request."""
    try:
        yield
    except InvalidMatrix as error:
        message = f"{field}: {error.message}"
        raise InvalidMatrix(message, field=field, value=error.value, limit=error.limit) from error


@contextmanager
def _in_matrix() -> Iterator[None]:
    """Names of fields as they stand in the body."""
    try:
        yield
    except InvalidMatrix as error:
        field = f"{MATRIX}.{error.field}" if error.field else MATRIX
        raise InvalidMatrix(f"{MATRIX}.{error.message}", field=field, value=error.value, limit=error.limit) from error


def _given_once(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Raises InvalidOption naming a field that came twice: nobody can tell which one was meant."""
    fields: dict[str, Any] = {}
    for name, value in items:
        if name in fields:
            raise InvalidOption(f"{name}: given twice", field=name, limit="once")
        fields[name] = value
    return fields


def _form_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Form fields with those of nested options gathered."""
    options: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise InvalidOption(f"{name}: unexpected file part", field=name)
        option, _, inner = name.partition("_")
        if option in (*NESTED_OPTIONS, AXES) and inner:
            options.setdefault(option, {})[inner] = value
        else:
            options[name] = value
    return options


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"{PROGRAM}: byte {error.start} is not UTF-8", field=PROGRAM, value=f"byte {error.start}", limit="UTF-8"
        ) from error
