"""Our own tasks asked for over HTTP: what there is, what is taken, and what is refused before anything is queued."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import sparsesmith
from sparsesmith.client import Client
from sparsesmith.errors import InvalidOption, NotFound
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.transport.connection import Redis
from sparsesmith_proto.api import TaskCard, TaskPage
from tests.cli.shell import Shell, assert_one_line
from tests.generator.live_service import Evaluators, live_service

MATRIX = {"num_rows": 1, "num_cols": 1, "row_indices": [0], "col_indices": [0]}


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def client(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, evaluators) as client:
        yield client


def test_every_task_is_listed_with_what_a_request_needs(client: httpx.Client) -> None:
    page = TaskPage.model_validate_json(client.get("/v1/tasks").content)
    cards = {card.name: card for card in page.tasks}
    assert list(cards) == sorted(task.name for task in our_tasks())
    for task in our_tasks():
        card = TaskCard.model_validate_json(client.get(f"/v1/tasks/{task.name}").content)
        assert card == cards[task.name]
        assert (card.axes, card.formula, card.text) == (task.axes, task.formula, task.text)
        assert card.programs[0] == task.naive
        assert [dict(axes) for axes in card.sizes] == [dict(axes) for axes in task.published]
        assert {"float32", "float64"} <= set(card.element_types)


@pytest.mark.parametrize(("name", "near"), [("sotfmax", "softmax"), ("sums", "sum")])
def test_a_task_that_is_none_is_told_the_nearest(client: httpx.Client, name: str, near: str) -> None:
    response = client.get(f"/v1/tasks/{name}")
    problem = response.json()
    assert (response.status_code, problem["field"]) == (404, "task")
    assert f"task {name!r} is unknown; nearest: " in problem["detail"]
    assert near in problem["detail"]


def test_an_operation_on_a_matrix_is_no_task(client: httpx.Client) -> None:
    assert client.get("/v1/tasks/spmv").status_code == 404


REFUSED: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "an unknown task": ({"task": "dott"}, 422, "task", "nearest: dot"),
    "an axis that is missing": ({"axes": {}}, 422, "axes.n", "axes.n is missing: dot has the axes n"),
    "an axis that is unknown": ({"axes": {"n": 4, "m": 3}}, 422, "axes.m", "dot has no such axis (it has: n)"),
    "an axis of zero": ({"axes": {"n": 0}}, 422, "axes.n", "greater than or equal to 1"),
    "axes beyond memory": (
        {"task": "transpose", "axes": {"rows": 2**20, "cols": 2**20}},
        413,
        "axes",
        f"take {2 * 4 * 2**40} bytes, at most {64 * 2**30}",
    ),
    "axes that contradict each other": (
        {"task": "top_k", "axes": {"n": 10, "k": 20}},
        422,
        "axes",
        "n=10, k=20: top_k needs k <= n",
    ),
    "a matrix as well": ({"matrix": MATRIX}, 422, "task", "matrix and task: both given"),
    "a type that it is not offered in": (
        {"element_type": "float16"},
        422,
        "element_type",
        "element_type is float16: dot is computed for float32, float64",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_told_by_field_value_and_limit_before_anything_is_queued(
    client: httpx.Client, evaluators: Evaluators, redis_connection: Redis, what: str
) -> None:
    changes, status, field, reason = REFUSED[what]
    response = client.post("/v1/kernels", json={"task": "dot", "axes": {"n": 1000}, **changes})
    problem = response.json()
    assert (response.status_code, problem["field"]) == (status, field)
    assert reason in problem["detail"]
    assert problem["limit"]
    assert client.get("/v1/kernels").json()["jobs"] == []
    assert evaluators.jobs == {}


def test_a_task_is_tuned_from_python(client: httpx.Client) -> None:
    url = str(client.base_url)
    dot = sparsesmith.tune_task("dot", url=url, n=1000, budget={"candidates": 4, "seconds": 20}, search="families")
    assert dot.report.workload.axes == {"n": 1000}
    assert dot.program.startswith("//@ task dot")
    with pytest.raises(InvalidOption, match=r"axes\.n is missing"):
        sparsesmith.tune_task("dot", url=url)
    with pytest.raises(InvalidOption, match="nearest: dot"):
        sparsesmith.tune_task("dto", url=url, n=1000)
    with pytest.raises(NotFound, match="nearest: dot"), Client(url) as asked:
        asked.task("dto")


def test_the_command_line_lists_and_shows_tasks(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARSESMITH_URL", str(client.base_url))
    shell = Shell(monkeypatch, capsys)
    listed = shell("tasks", "list")
    assert shell("tasks").out == listed.out
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert (listed.code, names) == (0, ["task", *sorted(task.name for task in our_tasks())])
    assert TaskPage.model_validate_json(shell("tasks", "list", "--json").out).tasks
    shown = shell("tasks", "show", "transpose")
    assert "[cols, rows]" in shown.out
    assert "sparsesmith tune --task transpose --axes rows=1024,cols=1024" in shown.out
    assert TaskCard.model_validate_json(shell("tasks", "show", "transpose", "--json").out).name == "transpose"
    assert_one_line(shell("tasks", "show", "transpsoe"), "task 'transpsoe' is unknown; nearest: transpose")
