"""The interface describes itself: a valid document, a client that a generator makes of it, a page of its own."""

import importlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import scipy.io
import scipy.sparse
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.generator.live_service import Evaluators, live_service

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
BUDGET = {"candidates": 2, "seconds": 20}
WAIT = {"Prefer": "wait=20"}


@pytest.fixture
def http(redis_url: str) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators()) as client:
        yield client


@pytest.fixture
def document(http: httpx.Client) -> dict[str, Any]:
    made: dict[str, Any] = http.get("/openapi.json").json()
    return made


def parts(value: object) -> Iterator[dict[str, Any]]:
    """All objects of a document."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from parts(inner)


def test_the_document_is_valid_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    references = {part["$ref"] for part in parts(document) if "$ref" in part}
    assert {reference.rpartition("/")[0] for reference in references} == {"#/components/schemas"}
    assert {reference.rpartition("/")[2] for reference in references} <= document["components"]["schemas"].keys()


def test_every_operation_has_a_name_of_its_own_and_answers_problems(document: dict[str, Any]) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"]


def test_uploads_and_waiting_are_described(document: dict[str, Any]) -> None:
    for path, required in (("/v1/kernels", ["file"]), ("/v1/evaluations", ["file", "program"])):
        post = document["paths"][path]["post"]
        form = post["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["required"] == required
        assert {"file", "operation", "element_type", "num_dense_cols", "values"} <= form["properties"].keys()
        assert {"200", "202", "400", "408", "409", "413", "415", "422", "503"} <= post["responses"].keys()
        assert "Location" in post["responses"]["202"]["headers"]
        assert "Retry-After" in post["responses"]["503"]["headers"]


@pytest.mark.parametrize("kind", ["cu", "hpp", "py", "json", "candidates", "zip"])
def test_a_file_comes_under_a_media_type_that_the_document_names(
    http: httpx.Client, document: dict[str, Any], kind: str
) -> None:
    location = http.post("/v1/kernels", json={"matrix": MATRIX, "budget": BUDGET}, headers=WAIT).headers["location"]
    described = document["paths"]["/v1/kernels/{job_id}/artifact"]["get"]["responses"]["200"]["content"]
    came = http.get(f"{location}/artifact", params={"kind": kind}).headers["content-type"].partition(";")[0]
    assert came in described
    if kind == "cu":
        assert came == "text/x-cuda"


def generated_client(document: dict[str, Any], folder: Path) -> ModuleType:
    """Made by a generator that knows nothing of us; it warns of nothing."""
    openapi_python_client = pytest.importorskip("openapi_python_client", reason="install.sh installs it")
    config_of = importlib.import_module("openapi_python_client.config")
    (folder / "openapi.json").write_text(json.dumps(document))
    settings = config_of.ConfigFile(post_hooks=[], package_name_override="generated_client")
    target = folder / "generated_client"
    config = config_of.Config.from_sources(
        settings, config_of.MetaType.NONE, folder / "openapi.json", "utf-8", overwrite=True, output_path=target
    )
    assert [str(error) for error in openapi_python_client.generate(config=config)] == []
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("generated_client")
    finally:
        sys.path.remove(str(folder))


def test_a_generated_client_tunes_uploads_and_looks_around(
    http: httpx.Client, document: dict[str, Any], tmp_path: Path
) -> None:
    package = generated_client(document, tmp_path)
    api = {
        name: importlib.import_module(f"generated_client.api.default.{name}")
        for name in ("tune_kernel", "job_status", "tried_candidates", "ready", "cancel_job", "list_jobs")
    }
    models = importlib.import_module("generated_client.models")
    types = importlib.import_module("generated_client.types")
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, scipy.sparse.identity(5))
    with package.Client(base_url=str(http.base_url)) as client:
        assert api["ready"].sync(client=client).status == "ready"
        body = models.KernelRequest.from_dict({"matrix": MATRIX, "budget": BUDGET})
        tuned = api["tune_kernel"].sync(client=client, body=body, prefer="wait=20")
        assert isinstance(tuned.status, models.Finished)
        assert tuned.status.report.num_rows == 3
        upload = models.TuneKernelFilesBody(
            file=types.File(payload=io.BytesIO(buffer.getvalue()), file_name="m.mtx"), budget_candidates=2
        )
        uploaded = api["tune_kernel"].sync(client=client, body=upload, prefer="wait=20")
        assert uploaded.status.report.nnz == 5
        page = api["tried_candidates"].sync(uploaded.job_id, client=client, limit=1)
        assert (page.num_candidates, len(page.candidates)) == (2, 1)
        assert {job.job_id for job in api["list_jobs"].sync(client=client).jobs} == {tuned.job_id, uploaded.job_id}
        unknown = api["job_status"].sync("none", client=client)
        assert isinstance(unknown, models.Problem)
        assert unknown.detail == "no job none"
        ended = api["cancel_job"].sync(tuned.job_id, client=client)
        assert ended.status == 409


def test_the_interface_is_told_on_a_page_that_asks_no_other_host(http: httpx.Client, document: dict[str, Any]) -> None:
    page = http.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in re.sub(r"<[^>]+>", "", page.text)
    assert re.findall(r'(?:src|href)="(?!#|openapi\.json)', page.text) == []
    assert re.findall(r"<script|@import|url\(", page.text) == []
    anchors = set(re.findall(r'id="([^"]+)"', page.text))
    assert set(re.findall(r'href="#([^"]+)"', page.text)) <= anchors


def test_a_method_that_is_not_there_is_told_those_that_are(http: httpx.Client) -> None:
    for path, methods in (("/v1/kernels", "GET, POST"), ("/v1/kernels/x", "DELETE, GET"), ("/healthz", "GET")):
        response = http.patch(path)
        assert (response.status_code, response.headers["allow"]) == (405, methods)
        assert response.headers["content-type"] == "application/problem+json"
