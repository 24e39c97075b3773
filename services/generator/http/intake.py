"""From an HTTP body to an order and a pattern: parsed in a thread, bounded, every refusal naming its field."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from services.generator.heap import trim_heap
from services.generator.http.body_limit import JSON, media_type
from services.generator.http.index_lists import PIECE_BYTES, BodyStream
from services.generator.orders import EvaluationOrder, KernelOrder, OrderedMatrix
from services.generator.problems import invalid_option
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import InvalidInput, InvalidMatrix, InvalidOption, LimitExceeded
from sparsesmith.matrix.files import MatrixLimits, read_matrix, read_pattern
from sparsesmith.matrix.limits import check_emptiness, check_limit
from sparsesmith.matrix.pattern import Int32Array, Pattern, pattern_from_indices
from sparsesmith.matrix.values import fixed_values, values_of_entries
from sparsesmith.operations import check_axes, operation_named
from sparsesmith_proto.api import Budget, EvaluationRequest, MatrixIndices, TuningOptions, ValuesOption
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS, ElementType, Message, Operation, ProgramText

FORM = "multipart/form-data"
MATRIX = "matrix"
FILE = "file"
PROGRAM = "program"
NESTED_OPTIONS = {"budget": "Budget", "refine": "Refinement"}
"""Options with fields of their own (in a form `budget_seconds`), and their types."""
INDEX_LISTS = ("row_indices", "col_indices")
VALUES = "values"
PART_BYTES = 4 * MAX_PROGRAM_CHARACTERS
"""Of a part of a form that is no file."""
TRIM_BYTES = 2**20
"""After a pattern of this size memory is given back."""

Float64Array = npt.NDArray[np.float64]
Model = TypeVar("Model", bound=BaseModel)


class EvaluationOptions(Message):
    """`EvaluationRequest` without its matrix."""

    operation: Operation = "spmv"
    element_type: ElementType = "float32"
    num_dense_cols: int = EvaluationRequest.model_fields["num_dense_cols"].default
    values: ValuesOption = "any"
    program: ProgramText
    budget: Budget = Budget()


@dataclass(frozen=True)
class Submission:
    """A request's parts before they are checked together: options as given, and the pattern."""

    options: Mapping[str, Any]
    pattern: Pattern
    separator: str
    """Joins the parts of a nested option's name: "." in JSON, "_" in a form."""
    given_values: Float64Array | None
    """In the order of the pattern; None where the matrix came without."""

    def read(self, model: type[Model]) -> Model:
        """The options as a model. Raises InvalidOption naming the field."""
        try:
            return model.model_validate(self.options)
        except ValidationError as error:
            raise invalid_option(error, separator=self.separator) from error

    def matrix(self, options: TuningOptions | EvaluationOptions) -> OrderedMatrix:
        """Raises InvalidMatrix where values are fixed and were not given or do not fit the element type, InvalidOption
        where they were given and are not fixed."""
        where = f"{MATRIX}.{VALUES}" if self.separator == "." else FILE
        match options.values, self.given_values:
            case "any", None:
                return OrderedMatrix(self.pattern, None)
            case "any", _:
                raise InvalidOption(f"{where}: values are taken only with values=fixed", field=VALUES, value="any")
            case _, None:
                raise InvalidMatrix(f"{where}: values=fixed needs the matrix's values, real numbers", field=where)
            case _, given:
                with _named(where):
                    return OrderedMatrix(self.pattern, fixed_values(given, options.element_type))


class Intake:
    """Reads requests within the service's limits."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._settings = settings
        self._parsing = asyncio.Semaphore(settings.max_parsed_matrices)

    @asynccontextmanager
    async def kernel_order(self, request: Request) -> AsyncIterator[tuple[KernelOrder, OrderedMatrix]]:
        """The matrix is in memory until the context ends, one of a few at a time."""
        async with self._submission(request) as submission:
            options = submission.read(TuningOptions)
            matrix, workload = await self._matrix(submission, options)
            use_cache = "no-cache" not in request.headers.get("cache-control", "").lower()
            yield KernelOrder(workload=workload, options=options, use_cache=use_cache), matrix

    @asynccontextmanager
    async def evaluation_order(self, request: Request) -> AsyncIterator[tuple[EvaluationOrder, OrderedMatrix]]:
        """As `kernel_order`."""
        async with self._submission(request) as submission:
            options = submission.read(EvaluationOptions)
            matrix, workload = await self._matrix(submission, options)
            yield EvaluationOrder(workload=workload, program=options.program, budget=options.budget), matrix

    async def _matrix(
        self, submission: Submission, options: TuningOptions | EvaluationOptions
    ) -> tuple[OrderedMatrix, Workload]:
        _check_operands(submission.pattern, options, self._settings.max_operand_bytes)
        matrix = await asyncio.to_thread(submission.matrix, options)
        return matrix, await asyncio.to_thread(_workload, matrix, options)

    @asynccontextmanager
    async def _submission(self, request: Request) -> AsyncIterator[Submission]:
        """A body is received first, however slowly it comes, and has its turn only when it is there."""
        num_bytes = 0
        try:
            async with self._received(request) as parse, self._parsing:
                submission = await asyncio.to_thread(parse)
                num_bytes = submission.pattern.num_bytes
                yield submission
        finally:
            if num_bytes >= TRIM_BYTES:
                await asyncio.to_thread(trim_heap)

    @asynccontextmanager
    async def _received(self, request: Request) -> AsyncIterator[Callable[[], Submission]]:
        """What parses the body, once all of it is there."""
        match media_type(request.headers):
            case "application/json":
                text, lists = await self._received_json(request)
                yield lambda: self._from_json(text, lists)
            case "multipart/form-data":
                async with request.form(max_files=2, max_fields=16, max_part_size=PART_BYTES) as form:
                    yield await self._received_form(form)
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

    def _from_json(self, text: bytearray, lists: Mapping[str, npt.NDArray[Any]]) -> Submission:
        fields = _json_object(text, "body")
        matrix = fields.pop(MATRIX, None)
        if matrix is None:
            raise InvalidMatrix("matrix: this field is required", field=MATRIX)
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
        options = _decoded(fields, "body")
        pattern = _pattern(shape, rows, cols)
        with _in_matrix():
            summed = None if values is None else values_of_entries(pattern, rows, cols, values)
        return Submission(options, pattern, ".", summed)

    async def _received_form(self, form: FormData) -> Callable[[], Submission]:
        fields = _given_once(form.multi_items())
        upload = fields.pop(FILE, None)
        if not isinstance(upload, UploadFile):
            raise InvalidMatrix("file: send the matrix as a file part of this name (.mtx, .mtx.gz or .npz)", field=FILE)
        program = fields.get(PROGRAM)
        if isinstance(program, UploadFile):
            fields[PROGRAM] = _text(await program.read(PART_BYTES + 1))
        return lambda: self._from_form(fields, upload)

    def _from_form(self, fields: Mapping[str, Any], upload: UploadFile) -> Submission:
        pattern, values = self._read_upload(upload, keeps_values=fields.get(VALUES) == "fixed")
        return Submission(_form_options(fields), pattern, "_", values)

    def _read_upload(self, upload: UploadFile, *, keeps_values: bool) -> tuple[Pattern, Float64Array | None]:
        with tempfile.NamedTemporaryFile(prefix="sparsesmith-upload-") as copy:
            shutil.copyfileobj(upload.file, copy, 2**20)
            copy.flush()
            limits = MatrixLimits(max_file_bytes=self._settings.max_body_bytes, max_nnz=self._settings.max_nnz)
            path, name = Path(copy.name), upload.filename or ""
            return read_matrix(path, name, limits) if keeps_values else (read_pattern(path, name, limits), None)


def _check_operands(pattern: Pattern, options: TuningOptions | EvaluationOptions, limit: int) -> None:
    """Raises LimitExceeded for dense operands that no GPU holds."""
    element_bytes = np.dtype(options.element_type).itemsize
    num_bytes = (pattern.num_rows + pattern.num_cols) * options.num_dense_cols * element_bytes
    if num_bytes > limit:
        raise LimitExceeded(
            f"num_dense_cols: the dense operands take {num_bytes} bytes, at most {limit} are taken",
            field="num_dense_cols",
            value=num_bytes,
            limit=limit,
        )


def _workload(matrix: OrderedMatrix, options: TuningOptions | EvaluationOptions) -> Workload:
    """Computes the digests. Raises InvalidOption."""
    check_axes(operation_named(options.operation), options.num_dense_cols)
    try:
        return Workload(
            pattern=matrix.pattern.digest,
            operation=options.operation,
            element_type=options.element_type,
            num_dense_cols=options.num_dense_cols,
            values=None if matrix.values is None else matrix.values.digest,
        )
    except ValidationError as error:
        raise invalid_option(error) from error


def _json_object(text: bytearray | msgspec.Raw, field: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{field}: expected a JSON object", field=field, limit="a JSON object") from error
    except (msgspec.DecodeError, RecursionError) as error:
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
        if option in NESTED_OPTIONS and inner:
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
