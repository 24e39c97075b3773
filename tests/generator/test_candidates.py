"""What was tried for a job is shown, failures and all, by a real generator on a real Valkey."""

import io
import json
import zipfile
from collections.abc import Iterator

import httpx
import pytest

from services.generator.search.trials import told_origin
from sparsesmith.client import Client
from sparsesmith.errors import NotFound
from sparsesmith.transport.candidate_store import CandidateStore
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.job_store import History
from sparsesmith_proto.api import CandidatePage, TriedCandidate
from sparsesmith_proto.kernel import CompileFailed, Passed, Rejected, Sampled, UserWritten
from tests.generator.live_service import Evaluators, live_service
from tests.generator.orders import make_prompt

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
BODY = {"matrix": MATRIX, "budget": {"candidates": 6, "seconds": 20}}
WAIT = {"Prefer": "wait=20"}


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators(CompileFailed(log="line 3: expected a ';'"))


@pytest.fixture
def http(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, evaluators, batch_candidates=4, cache_ttl_s=0) as client:
        yield client


def tuned(http: httpx.Client) -> str:
    """Location of a job that has ended."""
    location: str = http.post("/v1/kernels", json=BODY, headers=WAIT).headers["location"]
    return location


def page(http: httpx.Client, location: str, **query: int) -> CandidatePage:
    response = http.get(f"{location}/candidates", params=query)
    assert response.status_code == 200, response.text
    return CandidatePage.model_validate_json(response.content)


def test_every_candidate_is_shown_with_its_text_and_why_it_failed(http: httpx.Client, evaluators: Evaluators) -> None:
    shown = page(http, tuned(http))
    given = [candidate for job, _ in evaluators.jobs.values() for candidate in job.candidates]
    assert sorted(tried.written or tried.program for tried in shown.candidates) == sorted(
        candidate.program for candidate in given
    )
    assert [tried.number for tried in shown.candidates] == list(range(6))
    assert {tried.message for tried in shown.candidates} == {"line 3: expected a ';'"}
    assert all(tried.origin.kind == "family" and tried.graded_s > 0 for tried in shown.candidates)
    assert (shown.num_candidates, shown.next_offset) == (6, None)


def test_candidates_come_page_by_page(http: httpx.Client) -> None:
    location = tuned(http)
    pages = [page(http, location, offset=offset, limit=4) for offset in (0, 4, 6)]
    assert [len(part.candidates) for part in pages] == [4, 2, 0]
    assert [part.next_offset for part in pages] == [4, None, None]
    assert pages[0].candidates + pages[1].candidates == page(http, location).candidates
    for wrong in ({"limit": 0}, {"limit": 100_000}, {"offset": -1}):
        assert http.get(f"{location}/candidates", params=wrong).status_code == 422


def test_a_graded_program_is_shown_like_any_other_candidate(http: httpx.Client) -> None:
    location = http.post("/v1/evaluations", json={"matrix": MATRIX, "program": "//"}, headers=WAIT).headers["location"]
    (tried,) = page(http, location).candidates
    assert (tried.program, tried.origin) == ("//", UserWritten())


def test_candidates_of_an_unknown_job_are_not_found(http: httpx.Client) -> None:
    assert http.get("/v1/kernels/none/candidates").status_code == 404
    with Client(str(http.base_url)) as client, pytest.raises(NotFound):
        client.candidates("none")


def test_the_client_and_the_artifacts_show_what_the_pages_show(http: httpx.Client) -> None:
    location = tuned(http)
    job_id = location.rsplit("/", 1)[-1]
    expected = page(http, location).candidates
    with Client(str(http.base_url)) as client:
        assert client.candidates(job_id) == list(expected)
        alone = client.artifact(job_id, "candidates")
        with zipfile.ZipFile(io.BytesIO(client.artifact(job_id, "zip"))) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".candidates.json")]
            assert archive.read(name) == alone
    assert tuple(TriedCandidate.model_validate(entry) for entry in json.loads(alone)) == expected


def test_a_search_that_is_started_over_shows_its_own_candidates_only(redis_url: str, evaluators: Evaluators) -> None:
    with live_service(redis_url, evaluators, batch_candidates=4, cache_ttl_s=0) as http:
        evaluators.seconds = 0.5
        location = http.post("/v1/kernels", json=BODY).headers["location"]
        while not page(http, location).candidates:
            pass
    with live_service(redis_url, evaluators, batch_candidates=4, cache_ttl_s=0) as http:
        assert http.get(location, headers=WAIT).json()["status"]["state"] == "finished"
        assert page(http, location).num_candidates == 6


def test_tokens_of_a_sample_are_not_told() -> None:
    sampled = Sampled(
        prompt=make_prompt(),
        group="g",
        token_ids=(1, 2),
        logprobs=(-1, -2),
        temperature=1,
        first_version=3,
        last_version=4,
    )
    assert told_origin(sampled).model_dump() == {
        "kind": "sampled",
        "group": "g",
        "first_version": 3,
        "last_version": 4,
        "temperature": 1.0,
    }


def test_an_entry_of_another_version_is_left_out_and_the_others_stay(redis_connection: Redis) -> None:
    store = CandidateStore(redis_connection)
    tried = [
        TriedCandidate(
            number=0, candidate_id=name, program="p", origin=UserWritten(), outcome=Rejected(message=name), graded_s=1
        )
        for name in ("a", "b")
    ]
    store.add("j", tried)
    redis_connection.lset("sparsesmith:job:j:candidates", 0, b"of a later release")
    found = store.page("j", 0, 10)
    assert [(one.number, one.message) for one in found.candidates] == [(1, "b")]
    assert History().seconds < redis_connection.ttl("sparsesmith:job:j:candidates") <= History().seconds + 3600
    store.clear("j")
    assert store.page("j", 0, 10).num_candidates == 0


def test_a_passed_candidate_has_no_message(redis_url: str) -> None:
    with live_service(redis_url, Evaluators()) as http:
        assert {tried.message for tried in page(http, tuned(http)).candidates} == {None}
        assert all(isinstance(tried.outcome, Passed) for tried in page(http, tuned(http)).candidates)
