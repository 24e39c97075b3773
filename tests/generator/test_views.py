"""What people look at: the matrix of a job, who works, the permalink, by HTTP."""

import re
import time
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from services.evaluator.metrics import EvaluatorMetrics
from services.generator.fleet import evaluator_views, trainer_views
from services.generator.http.page_shell import VERSION
from services.trainer.metrics import TrainerMetrics
from sparsesmith.transport.connection import connect
from sparsesmith.transport.job_store import JobStore
from sparsesmith.transport.metrics_channel import MetricsChannel, published
from sparsesmith_proto.api import Density, EvaluatorView, Fleet, JobStatus, MatrixCard
from sparsesmith_proto.kernel import CompileFailed
from sparsesmith_proto.words import ElementType, SearchStrategy, ValuesOption
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_device, make_passed, make_report, make_timing

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
DAY_S = 86400


@pytest.fixture
def http(redis_url: str) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators()) as client:
        yield client


def tuned(http: httpx.Client, matrix: dict[str, Any] = MATRIX) -> str:
    """The id of a job that has ended."""
    request = {"matrix": matrix, "search": "families", "budget": {"candidates": 4, "seconds": 20}}
    answer = http.post("/v1/kernels", json=request, headers={"Prefer": "wait=20"})
    return JobStatus.model_validate_json(answer.content).job_id


def test_the_matrix_of_a_job_is_shown_in_numbers(http: httpx.Client) -> None:
    card = MatrixCard.model_validate_json(http.get(f"/v1/kernels/{tuned(http)}/matrix").content)
    assert (card.num_rows, card.num_cols, card.nnz, card.longest_row) == (3, 4, 4, 2)
    assert http.get("/v1/kernels/none/matrix").status_code == 404


def test_its_density_is_counted_for_all_of_it_and_for_a_part(http: httpx.Client) -> None:
    address = f"/v1/kernels/{tuned(http)}/density"
    whole = http.get(address)
    assert whole.headers["content-encoding"] == "gzip"
    assert Density.model_validate_json(whole.content).counts == (1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0)
    assert http.get(address, headers={"accept-encoding": "identity"}).content == whole.content
    part = http.get(address, params={"first_row": 0, "end_row": 2, "first_col": 2, "end_col": 4, "grid": 1})
    assert Density.model_validate_json(part.content).counts == (1,)


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"end_row": 4}, "first_row"), ({"first_col": 4}, "first_col"), ({"first_row": -1}, "first_row"),
     ({"grid": 513}, "grid"), ({"first_row": 2, "end_row": 2}, "first_row")],
)  # fmt: skip
def test_rows_that_the_matrix_does_not_have_are_refused(http: httpx.Client, asked: dict[str, int], field: str) -> None:
    answer = http.get(f"/v1/kernels/{tuned(http)}/density", params=asked)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_a_large_matrix_is_counted_while_others_are_answered(http: httpx.Client) -> None:
    rng = np.random.default_rng(0)
    lists = {name: rng.integers(0, 100_000, 400_000).tolist() for name in ("row_indices", "col_indices")}
    job = tuned(http, {"num_rows": 100_000, "num_cols": 100_000, **lists})
    density = Density.model_validate_json(http.get(f"/v1/kernels/{job}/density").content)
    assert sum(density.counts) == MatrixCard.model_validate_json(http.get(f"/v1/kernels/{job}/matrix").content).nnz
    assert (density.grid_rows, density.grid_cols) == (512, 512)


def test_the_matrix_of_a_job_that_gave_it_back_is_said_to_be_gone(redis_url: str) -> None:
    with live_service(redis_url, Evaluators()) as http:
        files = {"file": ("m.mtx", b"%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n")}
        graded = http.post("/v1/evaluations", files=files, data={"program": "p"}, headers={"Prefer": "wait=20"})
        answer = http.get(f"{graded.headers['location']}/matrix")
    assert answer.status_code == 404
    assert "pattern" in answer.json()["detail"]


def test_there_is_no_listing_of_what_did_not_pass_or_is_not_there(redis_url: str) -> None:
    evaluators = Evaluators(CompileFailed(log="no"))
    with live_service(redis_url, evaluators) as http:
        job = tuned(http)
        for asked, status, told in (
            ({}, 409, f"job {job} has no program that passed"),
            ({"number": 0}, 409, "candidate 0 did not pass: compile_failed"),
            ({"number": 99}, 404, f"job {job} has no candidate 99"),
        ):
            answer = http.get(f"/v1/kernels/{job}/listing", params=asked)
            assert (answer.status_code, answer.json()["detail"]) == (status, told)
        assert not any(".listing." in name for name in evaluators.jobs)


def test_the_fleet_is_who_told_of_themselves_and_what_waits(http: httpx.Client, redis_url: str) -> None:
    metrics, trainer = EvaluatorMetrics(make_device(), {"device": True}), TrainerMetrics()
    report = make_report([make_passed(make_timing(5)), CompileFailed(log="no"), make_passed(make_timing(6))])
    metrics.graded(report.model_copy(update={"stages_ms": {"open": 40.0, "finals": 20.0}}), 0.1)
    trainer.updated({"seconds": 2.5, "version": 7, "mean_reward": 0.5, "pass_share": 0.75})
    channel = MetricsChannel(connect(redis_url))
    with published(metrics.registry, channel, "evaluator-1"), published(trainer.registry, channel, "trainer-1"):
        fleet = Fleet.model_validate_json(http.get("/v1/fleet").content)
    assert fleet.evaluators == (
        EvaluatorView(
            worker="evaluator-1",
            kind="cuda",
            device="NVIDIA H200",
            architecture="sm_90",
            jobs=1,
            job_seconds=0.1,
            outcomes={"compile_failed": 1, "passed": 2},
            stage_seconds={"finals": 0.02, "open": 0.04},
        ),
    )
    (view,) = fleet.trainers
    assert (view.updates, view.version, view.figures) == (1, 7, {"mean_reward": 0.5, "pass_share": 0.75})
    assert (fleet.jobs_waiting, fleet.history_days, fleet.policy) == (0, 30, None)


def test_what_is_no_exposition_is_nobody() -> None:
    texts = {"noise": "}{", "empty": "", "other": CollectorRegistry().__class__.__name__ + " 1\n"}
    assert (evaluator_views(texts), trainer_views(texts)) == ((), ())


def test_the_front_is_the_page_and_its_files_come_with_a_strict_policy(http: httpx.Client) -> None:
    page = http.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for address in re.findall(r'(?:src|href)="\./(page/[^"]+)"', page.text):
        file = http.get(f"/{address}")
        assert file.status_code == 200
        assert file.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert file.headers["cache-control"].endswith("immutable")
    assert re.findall(r'<script>|style="|javascript:|https?://', page.text) == []
    for words in (SearchStrategy, ElementType, ValuesOption):
        assert all(f'<option value="{word}">' in page.text for word in get_args(words))
    for name in ("..%2fpage_shell.py", "%2e%2e/page_shell.py", "none.js", "vendor/", ""):
        assert http.get(f"/page/{VERSION}/{name}").status_code == 404
    assert http.get("/page/of-another-release/main.js").status_code == 404
    assert page.headers["cache-control"] == "no-cache"


def test_a_job_can_be_read_without_scripts(http: httpx.Client) -> None:
    job = tuned(http)
    page = http.get(f"/jobs/{job}").text
    assert "2.00x faster than the best of 2 routines" in page
    assert "5.00 us, steady (95 % interval 0.2 % wide, 10 batches; SM at 1980 MHz; undisturbed)" in page
    assert "Repaid after " in page
    assert 'http-equiv="refresh"' not in page


def test_a_job_that_runs_is_loaded_anew_without_scripts_and_what_it_says_is_text(redis_url: str) -> None:
    evaluators = Evaluators(CompileFailed(log="<script>alert(1)</script>"))
    with live_service(redis_url, evaluators) as http:
        evaluators.released.clear()
        request = {"matrix": MATRIX, "search": "families", "budget": {"candidates": 4, "seconds": 20}}
        location = http.post("/v1/kernels", json=request).headers["location"]
        assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in http.get(as_page(location)).text
        evaluators.released.set()
        http.get(location, headers={"Prefer": "wait=20"})
        page = http.get(as_page(location)).text
    assert "compile failed: &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page


def as_page(location: str) -> str:
    return location.replace("/v1/kernels/", "/jobs/")


def test_the_form_works_without_scripts(http: httpx.Client) -> None:
    files = {"file": ("m.mtx", b"%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 2\n")}
    fields = {"budget_candidates": "2", "budget_seconds": "20", "search": "families", "num_dense_cols": "1"}
    answer = http.post("/jobs", files=files, data=fields)
    assert answer.status_code == 303
    page = http.get(answer.headers["location"].removeprefix("."))
    assert (page.status_code, "Job " in page.text) == (200, True)


def test_the_page_of_a_job_that_went_says_when(http: httpx.Client, redis_url: str) -> None:
    job = tuned(http)
    assert http.get(f"/jobs/{job}").status_code == 200
    assert not JobStore(connect(redis_url), clock=lambda: time.time() + 31 * DAY_S).keeps(job)
    page = http.get(f"/jobs/{job}")
    assert page.status_code == 404
    went = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * DAY_S))
    assert f"no job {job}: it went on {went}" in page.text
    assert http.get(f"/v1/kernels/{job}").json()["detail"] in page.text
