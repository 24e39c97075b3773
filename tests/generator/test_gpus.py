"""A request names a kind of GPU: over HTTP, in the queue, in what is kept, in what policy and tuner are told."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.generator.gpus import chosen
from services.generator.policy.sampling import SamplingOptions
from services.generator.search.grading import GradingLimits, graded
from services.generator.search.kernel_cache import TunedKernelCache
from services.generator.search.standing import Batch
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.transport.connection import connect
from sparsesmith.transport.gpu_kinds import GpuKind, GpuKinds
from sparsesmith.transport.queue import EvaluationQueue, QueueLimits
from sparsesmith.transport.tuned_kernel_store import TunedKernelStore
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import Finished, Fleet, JobStatus, KernelReport, Problem
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, DeviceDescription, UserWritten
from tests.artifacts.answers import make_matrix
from tests.artifacts.answers import make_report as make_answer
from tests.generator.live_service import Evaluators, announce, live_service
from tests.generator.orders import make_order, make_pattern, make_task
from tests.generator.processes import ServiceProcess
from tests.generator.reports import make_passed, make_timing, report_for
from tests.transport.messages import DEVICE, device_named
from tests.transport.workers import wait_until as wait_for
from tests.tuning.trained import make_model

H200, L40S = device_named("NVIDIA H200"), device_named("NVIDIA L40S", "sm_89")
H100 = device_named("NVIDIA H100 80GB HBM3")
MATRIX = {"num_rows": 3, "num_cols": 3, "row_indices": [0, 1, 2, 2], "col_indices": [0, 1, 0, 2]}


def kinds_of(*devices: DeviceDescription) -> tuple[GpuKind, ...]:
    return tuple(map(GpuKind.of, devices))


@pytest.mark.parametrize("asked", ["NVIDIA H200", "nvidia h200", "H200", "h200", " H200 ", "sm_90"])
def test_a_kind_is_meant_by_its_name_with_or_without_the_vendor_or_by_its_generation(asked: str) -> None:
    assert chosen(asked, kinds_of(H200, L40S)).name == "NVIDIA H200"


def test_the_interpreter_is_named_with_the_generation_that_it_stands_for() -> None:
    other = DEVICE.model_copy(update={"architecture": "sm_80"})
    assert chosen("PTX interpreter sm_80", kinds_of(DEVICE, other)).architecture == "sm_80"
    assert chosen("sm_90", kinds_of(DEVICE, other)).architecture == "sm_90"


@pytest.mark.parametrize(
    ("asked", "message", "limit"),
    [
        (
            "B200",
            "gpu: 'B200' is no kind of GPU of an evaluator here: there are NVIDIA H200 (sm_90), NVIDIA L40S (sm_89), "
            "NVIDIA H100 80GB HBM3 (sm_90)",
            "NVIDIA H200 (sm_90), NVIDIA L40S (sm_89), NVIDIA H100 80GB HBM3 (sm_90)",
        ),
        (
            "sm_90",
            "gpu: 'sm_90' is the generation of several kinds: name one of NVIDIA H200 (sm_90), "
            "NVIDIA H100 80GB HBM3 (sm_90)",
            "NVIDIA H200 (sm_90), NVIDIA H100 80GB HBM3 (sm_90)",
        ),
    ],
)
def test_a_kind_that_is_not_there_is_refused_with_those_that_are(asked: str, message: str, limit: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        chosen(asked, kinds_of(H200, L40S, H100))
    error = refusal.value
    assert (error.message, error.field, error.value, error.limit) == (message, "gpu", asked, limit)


def test_without_an_evaluator_it_is_not_known_which_kinds_there_are() -> None:
    with pytest.raises(Unavailable, match="no evaluator is there"):
        chosen("H200", ())


class KindEvaluators(Evaluators):
    """Every job is graded by the kind that it names, else by the first."""

    def __init__(self, *devices: DeviceDescription) -> None:
        super().__init__()
        self.devices = {device.gpu: device for device in devices}

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        report = super().wait(job_id, timeout_s)
        job, _ = self.jobs[job_id]
        device = next(iter(self.devices.values())) if job.gpu is None else self.devices[job.gpu]
        return None if report is None else report.model_copy(update={"device": device})


@pytest.fixture
def fleet(redis_url: str) -> KindEvaluators:
    announce(redis_url, H200, L40S)
    return KindEvaluators(H200, L40S)


@pytest.fixture
def http(redis_url: str, fleet: KindEvaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, fleet) as client:
        yield client


def post(http: httpx.Client, path: str = "/v1/kernels", **fields: Any) -> httpx.Response:
    body = {"matrix": MATRIX, "budget": {"candidates": 4, "seconds": 10}, **fields}
    body |= {"search": "families"} if path == "/v1/kernels" else {}
    return http.post(path, json=body, headers={"Prefer": "wait=20"})


def report_of(response: httpx.Response) -> KernelReport:
    assert response.status_code == 200, response.text
    state = JobStatus.model_validate_json(response.content).status
    assert isinstance(state, Finished)
    return state.report


def test_a_request_is_tuned_on_the_kind_that_it_names_and_kept_for_it(
    http: httpx.Client, fleet: KindEvaluators
) -> None:
    assert report_of(post(http, gpu="l40s")).device == L40S
    num_jobs = len(fleet.jobs)
    assert {job.gpu for job, _ in fleet.jobs.values()} == {"NVIDIA L40S"}
    assert report_of(post(http, gpu="sm_89")).device == L40S
    assert report_of(post(http)).device == L40S, "what is kept of a kind that is there serves who names none"
    assert len(fleet.jobs) == num_jobs
    assert report_of(post(http, gpu="H200")).device == H200
    assert len(fleet.jobs) > num_jobs


def test_a_request_that_names_no_kind_is_for_any(http: httpx.Client, fleet: KindEvaluators) -> None:
    report_of(post(http))
    assert {job.gpu for job, _ in fleet.jobs.values()} == {None}
    assert len({job.search for job, _ in fleet.jobs.values()}) == 1


def test_a_form_may_leave_the_field_empty(http: httpx.Client, fleet: KindEvaluators) -> None:
    matrix = b"%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 2\n"
    for gpu, expected in (("", None), ("H200", "NVIDIA H200")):
        data = {"gpu": gpu, "search": "families", "budget_candidates": "4", "budget_seconds": "10"}
        headers = {"Prefer": "wait=20", "Cache-Control": "no-cache"}
        answer = http.post("/v1/kernels", data=data, files={"file": ("a.mtx", matrix)}, headers=headers)
        assert report_of(answer).device == H200
        assert {job.gpu for job, _ in fleet.jobs.values()} == {expected}
        fleet.jobs.clear()


@pytest.mark.parametrize("path", ["/v1/kernels", "/v1/evaluations"])
@pytest.mark.parametrize("asked", ["l40s", "sm_89"])
@pytest.mark.parametrize("left", [("w1",), ("w0", "w1")], ids=["one kind", "all"])
def test_a_request_that_comes_again_after_its_kind_has_left_is_the_job_it_was(
    redis_url: str, http: httpx.Client, path: str, asked: str, left: tuple[str, ...]
) -> None:
    fields = {"program": "//@ format csr"} if path == "/v1/evaluations" else {"search": "families"}
    body = {"matrix": MATRIX, "budget": {"candidates": 4, "seconds": 10}, "gpu": asked, **fields}
    headers = {"Prefer": "wait=20", "Idempotency-Key": "once"}
    first = http.post(path, json=body, headers=headers)
    assert first.json()["status"]["state"] in ("finished", "graded"), first.text
    connect(redis_url).delete(*(f"rq:worker:{name}" for name in left))
    again = http.post(path, json=body, headers=headers)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
    other = http.post(path, json=body, headers={"Idempotency-Key": "another"})
    assert other.status_code == (422 if left == ("w1",) else 503)


def test_a_generation_that_two_kinds_have_by_now_means_the_one_that_it_meant(
    redis_url: str, http: httpx.Client
) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"matrix": MATRIX, "search": "families", "gpu": "sm_90"}
    first = http.post("/v1/kernels", json=body, headers=headers)
    announce(redis_url, H200, L40S, H100)
    again = http.post("/v1/kernels", json=body, headers=headers)
    assert again.json()["job_id"] == first.json()["job_id"]
    assert http.post("/v1/kernels", json=body).status_code == 422
    elsewhere = http.post("/v1/kernels", json={**body, "gpu": "L40S"}, headers=headers)
    assert elsewhere.status_code == 409, "the key stands for another request"


@pytest.mark.parametrize("path", ["/v1/kernels", "/v1/evaluations"])
def test_a_kind_that_no_evaluator_has_is_refused_before_anything_is_queued(
    http: httpx.Client, fleet: KindEvaluators, path: str
) -> None:
    fields = {"program": "//@ format csr"} if path == "/v1/evaluations" else {}
    answer = post(http, path, gpu="NVIDIA B200", **fields)
    problem = Problem.model_validate_json(answer.content)
    assert (problem.status, problem.field, problem.value) == (422, "gpu", "NVIDIA B200")
    assert problem.limit == "NVIDIA H200 (sm_90), NVIDIA L40S (sm_89)"
    assert not fleet.jobs
    assert http.get("/v1/kernels").json()["jobs"] == []


def test_a_kind_is_asked_for_where_no_evaluator_is(redis_url: str) -> None:
    with live_service(redis_url, Evaluators()) as client:
        answer = post(client, gpu="H200")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["field"] == "gpu"


def test_a_program_of_ones_own_is_graded_on_the_kind_that_is_named(http: httpx.Client, fleet: KindEvaluators) -> None:
    answer = post(http, "/v1/evaluations", gpu="L40S", program="//@ format csr")
    assert answer.json()["status"]["answer"]["device"]["name"] == "NVIDIA L40S"


def test_both_directions_of_a_job_are_of_one_kind(http: httpx.Client, fleet: KindEvaluators) -> None:
    first = KindEvaluators.wait

    def alternating(job_id: str, timeout_s: float) -> EvaluationReport | None:
        report = first(fleet, job_id, timeout_s)
        fleet.devices = dict(reversed(fleet.devices.items()))  # Who names none is graded by the other one next.
        return report

    fleet.wait = alternating  # type: ignore[method-assign]
    report = report_of(post(http, transposed="both"))
    assert report.transposed is not None
    assert report.transposed.device == report.device


def test_the_fleet_lists_the_kinds_and_metrics_count_what_waits_for_them(
    http: httpx.Client, redis_url: str, fleet: KindEvaluators
) -> None:
    queue = EvaluationQueue(connect(redis_url))
    queue.submit(make_job("one", gpu="NVIDIA L40S"))
    kinds = Fleet.model_validate_json(http.get("/v1/fleet").content).gpus
    told = [(kind.name, kind.architecture, kind.evaluators, kind.evaluations_waiting) for kind in kinds]
    assert told == [("NVIDIA H200", "sm_90", 1, 0), ("NVIDIA L40S", "sm_89", 1, 1)]
    metrics = http.get("/metrics").text
    assert 'sparsesmith_gpu_queue{gpu="NVIDIA L40S"} 1.0' in metrics
    assert 'sparsesmith_gpu_evaluators{gpu="NVIDIA H200"} 1.0' in metrics


def make_job(job_id: str, **changes: Any) -> EvaluationJob:
    candidate = Candidate(candidate_id="c", program="//@ format csr", origin=UserWritten())
    return EvaluationJob(
        job_id=job_id, workload=make_task().order.workload, candidates=(candidate,), budget_s=5, **changes
    )


def test_a_job_whose_kind_left_while_it_waited_fails_and_says_so(redis_url: str) -> None:
    announce(redis_url, H200)
    limits = QueueLimits(abandoned_check_s=0.1, gpu_patience_s=1)
    queue: Any = EvaluationQueue(connect(redis_url), limits)
    with live_service(redis_url, queue, first_grade_patience_s=60) as client:
        answer = client.post("/v1/kernels", json={"matrix": MATRIX, "gpu": "H200", "search": "families"})
        assert answer.status_code == 202
        connect(redis_url).delete("rq:worker:w0")
        state = client.get(answer.headers["location"], headers={"Prefer": "wait=20"}).json()["status"]
    assert state["state"] == "failed"
    assert (state["problem"]["status"], state["problem"]["field"]) == (503, "gpu")
    assert "no evaluator has NVIDIA H200 any more" in state["problem"]["detail"]
    assert queue.depth() == 0


class TwoKinds:
    """Batches are graded by one kind and the other in turn, as by evaluators of a release that knows no kinds."""

    def __init__(self) -> None:
        self._number = 0

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self._number += 1
        device = (H200, L40S)[self._number % 2]
        return report_for(job, make_passed(make_timing(5))).model_copy(update={"device": device})


def test_reports_of_two_kinds_are_never_mixed_in_one_search() -> None:
    lost: list[Batch] = []

    async def batches() -> Any:
        for number in range(4):
            yield (Candidate(candidate_id=f"c{number}", program="none", origin=UserWritten()),)

    async def story() -> list[EvaluationReport]:
        task = make_task(candidates=4)
        return [report async for report in graded(batches(), task, TwoKinds(), GradingLimits(1, 5), lost.append)]

    reports = asyncio.run(story())
    assert {report.device.gpu for report in reports} == {"NVIDIA L40S"}
    assert (len(reports), len(lost)) == (2, 2)


def test_an_answer_is_kept_for_each_kind_and_found_for_those_that_are_there(redis_url: str) -> None:
    there: list[str] = []

    async def names() -> list[str]:
        return there

    cache = TunedKernelCache(TunedKernelStore(connect(redis_url)), 60, names)
    order, answer = make_order(make_pattern()), make_answer(make_matrix())
    on = {device.gpu: answer.model_copy(update={"device": device}) for device in (H200, L40S)}

    async def story() -> None:
        for report in on.values():
            await cache.keep(order, report)
        for gpu in on:
            assert await cache.find(order.on(gpu), None) == on[gpu]
            there[:] = [gpu]
            assert await cache.find(order, None) == on[gpu]
        there[:] = ["NVIDIA B200"]
        assert await cache.find(order, None) is None
        assert await cache.find(order.on("NVIDIA B200"), None) is None

    asyncio.run(story())


def test_the_cost_model_is_that_of_the_kind_that_is_named(tmp_path: Path) -> None:
    make_model("NVIDIA H200").save(tmp_path)
    models = CostModels(tmp_path)
    learned = models.expected("spmv", "NVIDIA H200")
    models.on("NVIDIA L40S")
    assert models.expected("spmv", "NVIDIA H200") is learned
    assert models.expected("spmv", "NVIDIA L40S") is not learned
    assert models.expected("spmv") is models.expected("spmv", "NVIDIA L40S")


def test_prompts_are_for_the_kind_that_is_named_and_tell_no_more_than_they_would() -> None:
    kind = GpuKind.of(L40S.model_copy(update={"num_sms": 142, "copy_bandwidth_gbs": 700}))
    told = SamplingOptions("sm_90", 1.0, 100, 132, 4260.0).prompt("profiled", 1, kind)
    assert (told.architecture, told.num_sms, told.copy_bandwidth_gbs) == ("sm_89", 142, 700)
    untold = SamplingOptions("sm_90", 1.0, 100).prompt("structural", 1, kind)
    assert (untold.architecture, untold.num_sms, untold.copy_bandwidth_gbs) == ("sm_89", None, None)


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_two_interpreters_of_two_generations_share_a_queue_and_no_search_is_graded_by_both(
    redis_url: str, tmp_path: Path
) -> None:
    connection = connect(redis_url)
    common = {"SPARSESMITH_REDIS_URL": redis_url, "SPARSESMITH_EVALUATOR_DEVICE": "interpreter"}
    common |= {"SPARSESMITH_EVALUATOR_SPARE_PROCESS": "false", "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1"}
    evaluators = [
        ServiceProcess(
            "services.evaluator", tmp_path / f"{name}.log", **common, SPARSESMITH_EVALUATOR_ARCHITECTURE=name
        )
        for name in ("sm_80", "sm_90")
    ]
    queue: Any = EvaluationQueue(connection)
    try:
        wait_for(lambda: len(GpuKinds(connection).living()) == 2, 400)
        with live_service(redis_url, queue, batch_candidates=2, batches_in_flight=3, cache_ttl_s=0) as client:
            names = [*[None] * 4, "PTX interpreter sm_80", "sm_90"]
            jobs = [posted(client, number, gpu) for number, gpu in enumerate(names)]
            reports = [report_of(client.get(job, headers={"Prefer": "wait=60"}, timeout=130)) for job in jobs]
    finally:
        for evaluator in evaluators:
            evaluator.end()
    assert [report.device.architecture for report in reports[-2:]] == ["sm_80", "sm_90"]
    by_search: dict[str, set[str]] = {}
    for name in connection.scan_iter("rq:results:*"):
        for _, fields in connection.xrange(name):
            report = EvaluationReport.model_validate_json(json.loads(base64.b64decode(fields[b"return_value"])))
            by_search.setdefault(report.job_id.rpartition("-")[0], set()).add(report.device.gpu)
    assert len(by_search) == len(jobs)
    assert all(len(gpus) == 1 for gpus in by_search.values()), by_search
    assert len({gpu for gpus in by_search.values() for gpu in gpus}) == 2


def posted(client: httpx.Client, number: int, gpu: str | None) -> str:
    """A search for a matrix of its own, which lasts for several batches; its address."""
    size = 20 + number
    matrix = {"num_rows": size, "num_cols": size, "row_indices": [*range(size)], "col_indices": [*range(size)]}
    body = {"matrix": matrix, "search": "families", "gpu": gpu, "budget": {"candidates": 8, "seconds": 60}}
    answer = client.post("/v1/kernels", json=body)
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]
