"""The Python client against a real generator on a real Valkey; the evaluators' outcomes are the test's."""

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import sparsesmith
from sparsesmith.artifacts import artifact
from sparsesmith.client import AsyncClient, Client
from sparsesmith.errors import Conflict, InvalidMatrix, InvalidOption, LimitExceeded, NotFound, Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.runtime.ports import free_port
from sparsesmith_proto.api import Budget, Finished, JobStatus, KernelReport, Queued, Running, TuningOptions
from sparsesmith_proto.kernel import CompileFailed
from tests.artifacts.answers import CSR_PROGRAM, make_matrix
from tests.generator.live_service import Evaluators, live_service

OPTIONS = TuningOptions(budget=Budget(candidates=6, seconds=20))
ONE = TuningOptions(budget=Budget(candidates=1, seconds=20))
"""Which of several equally fast candidates wins is left to chance."""
MATRIX = make_matrix()


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def url(redis_url: str, evaluators: Evaluators) -> Iterator[str]:
    with live_service(redis_url, evaluators, max_body_bytes=100_000, cache_ttl_s=0) as http:
        yield str(http.base_url)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def matrix_market(matrix: Any) -> bytes:
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, matrix)
    return buffer.getvalue()


def answer_of(report: KernelReport) -> tuple[object, ...]:
    """What two reports on the same question share."""
    assert report.answer.kind == "kernel"
    return (report.workload, report.num_rows, report.nnz, report.answer.best.candidate.program, report.search.outcomes)


def test_a_file_and_every_kind_of_sparse_matrix_get_the_same_answer(client: Client, url: str) -> None:
    torch = pytest.importorskip("torch")
    from_file = answer_of(client.tune_file("m.mtx", matrix_market(MATRIX), ONE))
    tensor = torch.from_numpy(MATRIX.toarray())
    for matrix in (MATRIX, MATRIX.tocoo(), scipy.sparse.csc_array(MATRIX), tensor.to_sparse(), tensor.to_sparse_csr()):
        assert answer_of(client.tune(matrix, ONE).report) == from_file
    by_function = sparsesmith.tune(MATRIX, url=url, budget={"candidates": 1, "seconds": 20})
    assert answer_of(by_function.report) == from_file


def test_the_kernel_that_was_found_is_graded_as_it_was(client: Client) -> None:
    kernel = client.tune(MATRIX, OPTIONS)
    assert kernel.program is not None
    graded = client.grade(kernel.program, MATRIX)
    assert kernel.report.answer.kind == "kernel"
    assert graded.workload == kernel.report.workload
    assert graded.evaluation.outcome == kernel.report.answer.best.outcome
    assert client.grade_file(kernel.program, "m.mtx", matrix_market(MATRIX)).workload == graded.workload


def test_options_arrive(client: Client) -> None:
    budget = Budget(candidates=3, seconds=7.5)
    options = TuningOptions(
        operation="spmm", element_type="float64", num_dense_cols=4, search="families", budget=budget
    )
    report = client.tune(MATRIX, options).report
    workload = report.workload
    assert (workload.operation, workload.element_type, workload.num_dense_cols) == ("spmm", "float64", 4)
    assert (report.search.strategy, report.search.num_candidates) == ("families", 3)


@pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")
def test_the_transpose_is_tuned_instead_or_as_well(client: Client, url: str) -> None:
    matrix = make_matrix(40, 30)
    x = np.ones(40)
    both = client.tune(matrix, TuningOptions(budget=Budget(candidates=2, seconds=20)), transposed="both")
    assert both.report.search.num_candidates == both.T.report.search.num_candidates == 1
    assert both.T.report.extra_bytes is not None and both.T.report.extra_bytes > 0
    digests = [pattern_from_scipy(each).digest for each in (matrix, matrix.T.tocsr())]
    assert [both.report.workload.pattern, both.T.report.workload.pattern] == digests
    instead = sparsesmith.tune(matrix, url=url, transposed="yes", budget=ONE.budget)
    assert instead.shape == (40, 30) and instead.report.workload.pattern == digests[1]
    for operator in (both, instead):
        operator.update_values(matrix * 2)
        np.testing.assert_allclose(operator.rmatvec(x), 2 * (matrix.T @ x), rtol=1e-5)
    with pytest.raises(InvalidOption, match="transposed is 'maybe': expected no, yes, both"):
        sparsesmith.tune(matrix, url=url, transposed="maybe")  # type: ignore[call-overload]


def test_fixed_values_travel_with_the_matrix_and_bind_the_kernel_to_them(client: Client, url: str) -> None:
    kernel = client.tune(MATRIX, OPTIONS.model_copy(update={"values": "fixed"}))
    digest = fixed_values(MATRIX.data, "float32").digest
    assert kernel.report.workload.values == digest
    assert sparsesmith.tune(MATRIX, url=url, values="fixed", budget=ONE.budget).report.workload.values == digest
    assert client.grade(CSR_PROGRAM, MATRIX, TuningOptions(values="fixed")).workload.values == digest
    assert client.tune(MATRIX, OPTIONS).report.workload.values is None
    kernel.update_values(MATRIX.tocoo())
    with pytest.raises(InvalidMatrix, match="other values"):
        kernel.update_values(MATRIX * 2)


def test_progress_is_told_up_to_the_end(client: Client, evaluators: Evaluators) -> None:
    evaluators.seconds = 0.7
    states: list[JobStatus] = []
    client.tune(MATRIX, OPTIONS, states.append)
    assert isinstance(states[-1].status, Finished)
    assert all(isinstance(state.status, Queued | Running) for state in states[:-1])
    assert len(states) > 1


def test_the_client_waits_through_a_restart_of_the_server(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    port = free_port()
    states: list[JobStatus] = []
    with ThreadPoolExecutor(1) as pool, Client(f"http://127.0.0.1:{port}") as client:
        with live_service(redis_url, evaluators, port):
            answer = pool.submit(client.tune, MATRIX, OPTIONS, states.append)
            wait_until(lambda: bool(states))
        time.sleep(1)
        assert not answer.done()
        evaluators.released.set()
        with live_service(redis_url, evaluators, port):
            assert answer.result(30).report.answer.kind == "kernel"


def test_a_cancelled_job_is_a_conflict_for_who_waits(client: Client, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    job = client.submit("m.mtx", matrix_market(MATRIX), OPTIONS)
    threading.Timer(0.3, client.cancel, [job.job_id]).start()
    with pytest.raises(Conflict, match="was cancelled"):
        client.wait(job.job_id)
    with pytest.raises(Conflict, match="ended already"):
        client.cancel(job.job_id)
    evaluators.released.set()


def test_what_the_server_refuses_is_the_error_that_it_raised(client: Client) -> None:
    with pytest.raises(InvalidMatrix) as wrong:
        client.submit("m.mtx", b"not a matrix", OPTIONS)
    assert wrong.value.message
    with pytest.raises(InvalidMatrix, match="pdf"):
        client.submit("m.pdf", b"", OPTIONS)
    with pytest.raises(LimitExceeded) as large:
        client.submit("m.mtx", bytes(200_000), OPTIONS)
    assert (large.value.field, large.value.limit) == ("body", "100000")
    with pytest.raises(InvalidOption) as option:
        client.submit("m.mtx", matrix_market(MATRIX), TuningOptions(num_dense_cols=3))
    assert (option.value.field, option.value.value, option.value.limit) == ("num_dense_cols", "3", "1")
    with pytest.raises(NotFound):
        client.wait("no-such-job")
    with pytest.raises(NotFound, match="without a policy"):
        client.policy()
    with pytest.raises(InvalidMatrix, match="nnz is 0"):
        client.tune(scipy.sparse.csr_matrix((3, 3)), OPTIONS)


@pytest.mark.parametrize("kind", ["cu", "hpp", "py", "json", "candidates", "zip"])
def test_an_artifact_of_the_server_is_the_one_made_here(client: Client, kind: Any) -> None:
    job = client.submit("m.mtx", matrix_market(MATRIX), OPTIONS)
    report = client.wait(job.job_id)
    tried = client.candidates(job.job_id)
    made_here = artifact(kind, report, pattern_from_scipy(MATRIX), candidates=tried)
    assert client.artifact(job.job_id, kind) == made_here.content


def test_artifacts_that_do_not_exist_are_errors(client: Client, evaluators: Evaluators) -> None:
    evaluators.outcome = CompileFailed(log="no")
    job = client.submit("m.mtx", matrix_market(MATRIX), OPTIONS)
    client.wait(job.job_id)
    with pytest.raises(Conflict, match="no program to download"):
        client.artifact(job.job_id, "hpp")
    with pytest.raises(InvalidOption) as caught:
        client.artifact(job.job_id, "exe")  # type: ignore[arg-type]
    assert caught.value.field == "kind"
    evaluators.released.clear()
    running = client.submit("m.mtx", matrix_market(MATRIX), OPTIONS)
    with pytest.raises(Conflict, match="has no report"):
        client.artifact(running.job_id, "zip")
    client.cancel(running.job_id)
    evaluators.released.set()


def test_the_asynchronous_client_does_the_same(url: str) -> None:
    async def talk() -> None:
        async with AsyncClient(url) as client:
            assert await client.is_ready()
            states: list[JobStatus] = []
            kernel, other = await asyncio.gather(
                client.tune(MATRIX, ONE, states.append), client.tune(make_matrix(seed=1), ONE)
            )
            assert isinstance(states[-1].status, Finished)
            assert kernel.report.workload != other.report.workload
            graded = await client.grade(CSR_PROGRAM, MATRIX)
            assert graded.workload == kernel.report.workload
            job = await client.submit("m.mtx", matrix_market(MATRIX), ONE)
            assert answer_of(await client.wait(job.job_id)) == answer_of(kernel.report)
            assert (await client.artifact(job.job_id, "cu")).decode() == kernel.program
            assert isinstance((await client.status(job.job_id)).status, Finished)
            assert len(await client.candidates(job.job_id)) == 1
            with pytest.raises(Conflict):
                await client.cancel(job.job_id)
            with pytest.raises(InvalidMatrix):
                await client.tune_file("m.mtx", b"", OPTIONS)
            with pytest.raises(NotFound):
                await client.policy()

    asyncio.run(talk())


def test_nothing_that_listens_is_unavailable_at_once() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with Client(address) as client:
        assert not client.is_ready()
        with pytest.raises(Unavailable, match="is `sparsesmith up` running"):
            client.tune(MATRIX)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://h:x", "nonsense"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="url"):
        Client(url)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"operation": "SpGEMM"}, "operation"),
        ({"colour": "red"}, "colour"),
        ({"budget": {"candidates": 0}}, "budget.candidates"),
        ({"num_dense_cols": 5000}, "num_dense_cols"),
    ],
)
def test_an_unknown_option_is_named_before_anything_is_sent(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        sparsesmith.tune(MATRIX, url="http://127.0.0.1:9", **options)
    assert caught.value.field == field


def test_new_values_must_have_the_kernels_pattern(client: Client) -> None:
    kernel = client.tune(MATRIX, OPTIONS)
    kernel.update_values(MATRIX * 2)
    kernel.update_values(MATRIX.tocoo())
    wider = scipy.sparse.csr_matrix((MATRIX.data, MATRIX.indices, MATRIX.indptr), shape=(40, 31))
    offsets = MATRIX.indptr.copy()
    offsets[1] = offsets[2]  # The same columns, some of them a row further up.
    moved = scipy.sparse.csr_matrix((MATRIX.data, MATRIX.indices, offsets), shape=MATRIX.shape)
    for other in (wider, moved):
        with pytest.raises(InvalidMatrix, match="another pattern"):
            kernel.update_values(other)


def test_a_kernel_hands_out_its_files_without_the_server(client: Client) -> None:
    kernel = client.tune(MATRIX, OPTIONS)
    assert kernel.artifact("cu").decode() == kernel.program
    assert kernel.artifact("zip") == artifact("zip", kernel.report, pattern_from_scipy(MATRIX)).content


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
