"""Tasks over HTTP: refused unless the settings say otherwise, and then written down without being run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparsesmith.operations import operations
from sparsesmith.operations.imported.folder import VARIABLE, read_card
from tests.evaluator.references.problems import definition, workload
from tests.generator.live_service import Evaluators, live_service

NAIVE = "//@ task row_norm_d5\n"
POSTING = {"definition": json.dumps(definition()), "workloads": json.dumps(workload()), "program": NAIVE}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tasks"))
    operations.cache_clear()
    yield tmp_path / "tasks"
    monkeypatch.delenv(VARIABLE)
    operations.cache_clear()


def test_a_server_takes_no_task_unless_its_settings_say_so(redis_url: str, folder: Path) -> None:
    with live_service(redis_url, Evaluators()) as client:
        response = client.post("/v1/tasks", json=POSTING)
    assert response.status_code == 403
    assert "SPARSESMITH_GENERATOR_POSTED_TASKS" in response.json()["detail"]
    assert not list(folder.glob("*"))


@pytest.fixture
def client(redis_url: str, folder: Path) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators(), posted_tasks=True) as client:
        yield client


def test_a_posted_definition_is_a_task_that_is_marked_as_posted(client: httpx.Client, folder: Path) -> None:
    response = client.post("/v1/tasks", json=POSTING)
    assert response.status_code == 201, response.text
    card = response.json()
    assert (card["name"], card["axes"], card["programs"]) == ("row_norm_d5", ["batch"], ["naive"])
    assert client.get("/v1/tasks/row_norm_d5").json() == card
    assert read_card(folder / "row_norm_d5").posted
    again = client.post("/v1/tasks", json=POSTING)
    assert (again.status_code, again.json()["field"]) == (422, "definition.name")


MANY = json.dumps(workload(axes={"Batch": "many"}))
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a field that there is not": ({"tests": 3}, "tests"),
    "no program": ({"program": ""}, "program"),
    "a definition without a reference": ({"definition": '{"name": "x"}'}, "axes"),
    "a workload of an axis that is no number": (
        {"workloads": MANY},
        "axes.Batch",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_posted_task_is_told_by_field(client: httpx.Client, folder: Path, what: str) -> None:
    changes, field = WRONG[what]
    response = client.post("/v1/tasks", json={**POSTING, **changes})
    assert (response.status_code, response.json()["field"]) == (422, field), response.text
    assert not list(folder.glob("*"))


def test_a_task_without_a_program_is_refused_before_anything_is_queued(client: httpx.Client, folder: Path) -> None:
    client.post("/v1/tasks", json=POSTING)
    path = folder / "row_norm_d5" / "task.json"
    path.write_text(path.read_text().replace('"naive"', ""))
    operations.cache_clear()
    response = client.post("/v1/kernels", json={"task": "row_norm_d5", "axes": {"batch": 4}})
    assert (response.status_code, response.json()["field"]) == (422, "task")
    assert "has no program that others could be compared with" in response.json()["detail"]
