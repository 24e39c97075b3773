"""The interface as an OpenAPI 3.1 document: FastAPI's, with bodies, statuses and media types that it cannot know."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

import sparsesmith
from services.generator.http.access import OF_A_JOB, OPEN, SECRET_HEADER, SECRET_PARAMETER
from services.generator.http.intake import AXES, NESTED_OPTIONS
from sparsesmith.artifacts.bundle import MEDIA_TYPES
from sparsesmith_proto.api import (
    EvaluationRequest,
    KernelReport,
    KernelRequest,
    Problem,
    RollbackRequest,
    TaskPosting,
    TriedCandidate,
    TuningOptions,
)
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS

Document = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

PROBLEM = "application/problem+json"
REF = "#/components/schemas/{model}"
DESCRIPTION = """Post a sparse matrix, or a task with its axes, get back a CUDA kernel tuned for it. Errors are RFC 9457
problem documents. A schema cannot say that indices lie within the shape, nor that limits depend on each other: such
requests are answered 413 or 422."""

_REASONS: Mapping[int, str] = {
    400: "No HTTP request, or a form that is cut short",
    401: "The server asks for a key, and none came that opens it",
    403: "Operators ask from the server's own machine; tasks are taken where the settings say so",
    404: "No such job, pattern, policy or key",
    405: "No such method here",
    408: "The body paused or came too slowly",
    409: "Not possible in the job's state, or the Idempotency-Key stands for another question",
    413: "Larger than a setting allows",
    415: "The body is of no media type that is read here",
    422: "The request is wrong and will be wrong again",
    429: "A quota of the key is used up",
    431: "The target and the headers are too long",
    500: "A defect of the server; its log says more",
    503: "Redis does not answer, or the queue or the store is full",
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 0}}}
_LOCATION = {"Location": {"description": "Path of the job", "schema": {"type": "string"}}}
_APPLIED = {"Preference-Applied": {"description": "wait=SECONDS as granted", "schema": {"type": "string"}}}
_AUTHENTICATE = {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}}
_REQUEST_ID = {"X-Request-Id": {"description": "The request's id, given or new", "schema": {"type": "string"}}}


SCHEMES: Mapping[str, Document] = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key, as `sparsesmith keys create` prints it"},
    "permalink": {
        "type": "apiKey",
        "in": "header",
        "name": SECRET_HEADER,
        "description": "The secret of one job's permalink: opens that job, for reading",
    },
    "permalinkQuery": {"type": "apiKey", "in": "query", "name": SECRET_PARAMETER, "description": "The same"},
}


def problems(*statuses: int) -> Responses:
    """Responses of a route that may answer with these, beside those that any may."""
    every = sorted({*statuses, 422, 431, 500})
    return {status: _problem(status) for status in every}


def accepted() -> Responses:
    """Responses of a route that takes a matrix."""
    job = {"application/json": {"schema": _ref("JobStatus")}}
    headers = _LOCATION | _APPLIED
    return {
        200: {"description": "The job has ended within `Prefer: wait`", "content": job, "headers": headers},
        202: {"description": "The job is accepted", "content": job, "headers": headers},
        **problems(400, 408, 409, 413, 415, 503),
    }


def job_body(request: type[KernelRequest] | type[EvaluationRequest]) -> Document:
    """`openapi_extra` of a route that takes a matrix: as JSON, or as a form."""
    form = _kernel_form() if request is KernelRequest else _evaluation_form()
    content = {
        "application/json": {"schema": _ref(request.__name__)},
        "multipart/form-data": {"schema": form, "encoding": {"file": {"contentType": "application/octet-stream"}}},
    }
    return {"requestBody": {"required": True, "content": content}}


def json_body(request: type[RollbackRequest | TaskPosting]) -> Document:
    """`openapi_extra` of a route that reads a message itself: FastAPI answers some bodies that are no text with 400."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _ref(request.__name__)}}}}


def artifact_responses() -> Responses:
    """Each kind under its own media type."""
    schemas: dict[str, Any] = {
        media_type.partition(";")[0]: {"schema": {"type": "string"}} for media_type in MEDIA_TYPES.values()
    }
    schemas["application/zip"] = {"schema": {"type": "string", "format": "binary"}}
    candidates = {"type": "array", "items": _ref("TriedCandidate")}
    schemas["application/json"] = {"schema": {"anyOf": [_ref("KernelReport"), candidates]}}
    disposition = {"Content-Disposition": {"description": "With the file's name", "schema": {"type": "string"}}}
    return {200: {"description": "The file", "content": schemas, "headers": disposition}, **problems(404, 409, 503)}


def stream_responses() -> Responses:
    """Of server-sent events."""
    content = {"text/event-stream": {"schema": {"type": "string", "description": "Each event's data is a JobStatus"}}}
    return {200: {"description": "The job's states", "content": content}, **problems(404, 503)}


def operation_id(route: APIRoute) -> str:
    """A name for generated clients."""
    return route.name + ("_of_evaluation" if route.path.startswith("/v1/evaluations/") else "")


def install(app: FastAPI, asks_for_keys: bool = False) -> None:
    """`app.openapi` makes the document when it is first asked for."""
    made: list[Document] = []

    def openapi() -> Document:
        if not made:
            made.append(document(app, asks_for_keys))
        return made[0]

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI, asks_for_keys: bool = False) -> Document:
    """Made anew."""
    made = get_openapi(
        title="sparsesmith",
        version=sparsesmith.__version__,
        summary="Post a sparse matrix, get back a CUDA kernel tuned for it",
        description=DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=app.routes,
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in _request_schemas().items():
        schemas.setdefault(name, schema)
    made["components"]["securitySchemes"] = dict(SCHEMES)
    for path, method, operation in _operations(made):
        if not OPEN.fullmatch(path):
            _secure(path, method, operation, asks_for_keys)
        for status, response in operation["responses"].items():
            response["headers"] = {**response.get("headers", {}), **_REQUEST_ID}
            if status in ("429", "503"):
                response["headers"] |= _RETRY_AFTER
            if status == "401":
                response["headers"] |= _AUTHENTICATE
    return made


def _secure(path: str, method: str, operation: Document, asks_for_keys: bool) -> None:
    """An operation that needs a key, where the server asks for keys."""
    schemes: list[Document] = [{"key": []}]
    if method == "get" and OF_A_JOB.fullmatch(path):
        schemes += [{"permalink": []}, {"permalinkQuery": []}]
    operation["security"] = schemes if asks_for_keys else [{}, *schemes]
    operation["responses"] = dict(
        sorted({**operation["responses"], "401": _problem(401), "429": _problem(429)}.items())
    )


def _operations(made: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _request_schemas() -> Document:
    """Of messages that routes read or answer without FastAPI's knowledge."""
    models = (KernelRequest, EvaluationRequest, RollbackRequest, TaskPosting, Problem, KernelReport, TriedCandidate)
    _, shared = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    schemas: Document = shared["$defs"]
    return schemas


def _problem(status: int) -> dict[str, Any]:
    return {"description": _REASONS[status], "content": {PROBLEM: {"schema": _ref("Problem")}}}


def _ref(name: str) -> Document:
    return {"$ref": REF.format(model=name)}


def _kernel_form() -> Document:
    return _form(_form_fields(TuningOptions), ("file",))


def _form_fields(request: type[TuningOptions] | type[EvaluationRequest]) -> Document:
    """Options as fields of their own; those of nested options under `budget_` and `refine_`, sizes under `axes_`."""
    options = request.model_json_schema(ref_template=REF)
    plain = {*options["properties"]} - {*NESTED_OPTIONS, AXES}
    fields = {name: schema for name, schema in options["properties"].items() if name in plain}
    for name, nested in NESTED_OPTIONS.items():
        if name in options["properties"]:
            inner = options["$defs"][nested]["properties"]
            fields |= {f"{name}_{field}": schema for field, schema in inner.items()}
    return fields


def _evaluation_form() -> Document:
    fields = _form_fields(EvaluationRequest)
    options = {name: schema for name, schema in fields.items() if name not in ("matrix", "task", "program")}
    program = {"type": "string", "minLength": 1, "maxLength": MAX_PROGRAM_CHARACTERS, "description": "Field or file"}
    return _form({**options, "program": program}, ("file", "program"))


def _form(fields: Document, required: tuple[str, ...]) -> Document:
    file = {
        "type": "string",
        "format": "binary",
        "description": "The matrix: .mtx, .mtx.gz or SciPy .npz, known by the name of the file",
    }
    return {
        "type": "object",
        "properties": {"file": file, **fields},
        "patternProperties": {"^axes_[a-z][a-z0-9_]*$": {"type": "integer", "minimum": 1}},
        "required": list(required),
        "additionalProperties": False,
    }
