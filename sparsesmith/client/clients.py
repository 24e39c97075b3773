"""`Client` and `AsyncClient`: the flows of the HTTP interface, driven by httpx."""

import asyncio
import io
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast, overload

import httpx
import numpy as np
import scipy.sparse

from sparsesmith.artifacts import ArtifactKind
from sparsesmith.client import flows
from sparsesmith.client.flows import Call, Flow, Health, OnProgress, Pause
from sparsesmith.client.headers import client_headers
from sparsesmith.client.instant import InstantOperator
from sparsesmith.client.options import tuning_options
from sparsesmith.client.transposed import operator_of, refuse_instant, with_direction
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.operator import Operator, TaskKernel
from sparsesmith.operator.matrices import SparseMatrix, to_scipy
from sparsesmith_proto.api import (
    EvaluationAnswer,
    JobPage,
    JobStatus,
    KernelReport,
    Permalink,
    PolicyStatus,
    Running,
    SigningKey,
    TaskCard,
    TransposedOption,
    TriedCandidate,
    TuningOptions,
)

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(connect=10, read=120, write=600, pool=10)
MATRIX_NAME = "matrix.npz"

Answer = TypeVar("Answer")
Reply = httpx.Response | Unavailable | None


class Client:
    """A connection to a sparsesmith server. Errors are those of `sparsesmith.errors`."""

    def __init__(
        self, url: str | None = None, headers: Mapping[str, str] | None = None, key: str | None = None
    ) -> None:
        """`url`: else SPARSESMITH_URL, else http://127.0.0.1:8000. `headers` go with every request, beside those of
        SPARSESMITH_HEADERS (`Name: value`, one a line). `key`: for a server that asks for one, else SPARSESMITH_KEY.
        Raises InvalidOption for what is no HTTP address or no header.
        """
        self._http = httpx.Client(**_connection(url, headers, key))
        self._again = partial(Client, url, headers, key)
        """Another connection to the same server."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def url(self) -> str:
        """The server's address."""
        return str(self._http.base_url).rstrip("/")

    def tune(
        self,
        matrix: SparseMatrix,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
        *,
        transposed: TransposedOption | None = None,
    ) -> Operator:
        """Tune a kernel for the matrix's pattern, or with values="fixed" for its values too, and bind it to them.

        `transposed`, else that of the options: "yes" tunes A^T instead, "both" tunes both in one job, each with half of
        the budget. The operator is that of A all the same.
        """
        csr, chosen = to_scipy(matrix), with_direction(options, transposed)
        job_id = self.submit(MATRIX_NAME, matrix_file(csr, chosen), chosen).job_id
        return operator_of(csr, chosen, self.wait(job_id, on_progress))

    def tune_instantly(
        self, matrix: SparseMatrix, options: TuningOptions | None = None, on_progress: OnProgress | None = None
    ) -> InstantOperator | Operator:
        """A kernel that is there before the search, which goes on behind it; the search's own answer where no kernel
        passed the one check, or it was known already. Of the options `search` is instant."""
        csr, chosen = to_scipy(matrix), _instant(options)
        job_id = self.submit(MATRIX_NAME, matrix_file(csr, chosen), chosen).job_id
        job = self.answered(job_id, on_progress)
        if isinstance(job.status, Running) and job.status.instant is not None:
            ask, wait = partial(_status_of, self._again, job_id), partial(_answer_of, self._again, job_id)
            return InstantOperator(job_id, job.status.instant, csr, ask, wait)
        return Operator(self.wait(job_id), csr)

    def tune_file(
        self, name: str, data: bytes, options: TuningOptions | None = None, on_progress: OnProgress | None = None
    ) -> KernelReport:
        """Tune a kernel for a matrix file (.mtx, .mtx.gz, .npz by its name)."""
        return self.wait(self.submit(name, data, options).job_id, on_progress)

    def submit(self, name: str, data: bytes, options: TuningOptions | None = None) -> JobStatus:
        """Hand in a matrix file; the answer is there later."""
        return self._run(flows.submit_kernel(name, data, options or TuningOptions()))

    def submit_task(self, options: TuningOptions) -> JobStatus:
        """Hand in a task without a matrix, by `operation` and `axes` of the options; the answer is there later."""
        return self._run(flows.submit_task(options))

    def tune_task(self, options: TuningOptions, on_progress: OnProgress | None = None) -> TaskKernel:
        """Tune a kernel for a task without a matrix, by `operation` and `axes` of the options, and wait for it."""
        return TaskKernel(self.wait(self.submit_task(options).job_id, on_progress))

    def wait(self, job_id: str, on_progress: OnProgress | None = None) -> KernelReport:
        """The answer of a job handed in; `on_progress` gets its state at every look.

        Goes on through a restart of the server. Raises what went wrong, Conflict for a job that was cancelled.
        """
        return self._run(flows.finished_kernel(job_id, on_progress))

    def answered(self, job_id: str, on_progress: OnProgress | None = None) -> JobStatus:
        """The state once there is something to use: a kernel that was handed out before the search, or the job's end.
        Raises NotFound."""
        return self._run(flows.answered(job_id, on_progress))

    def watch(self, job_id: str, on_progress: OnProgress | None = None) -> JobStatus:
        """The last state of a job of either kind, however it ends; `on_progress` as in `wait`. Raises NotFound."""
        return self._run(flows.ended(job_id, on_progress))

    def grade(
        self,
        program: str,
        matrix: SparseMatrix,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> EvaluationAnswer:
        """Grade a kernel program on a matrix. Of the options the workload's and the budget count."""
        return self.grade_file(program, MATRIX_NAME, matrix_file(to_scipy(matrix), options), options, on_progress)

    def grade_file(
        self,
        program: str,
        name: str,
        data: bytes,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> EvaluationAnswer:
        """Grade a kernel program on a matrix file."""
        job = self.submit_program(program, name, data, options)
        return self._run(flows.finished_evaluation(job.job_id, on_progress))

    def submit_program(self, program: str, name: str, data: bytes, options: TuningOptions | None = None) -> JobStatus:
        """Hand in a kernel program with a matrix file; what became of it is there later."""
        return self._run(flows.submit_evaluation(program, name, data, options or TuningOptions()))

    def grade_task(
        self, program: str, options: TuningOptions, on_progress: OnProgress | None = None
    ) -> EvaluationAnswer:
        """Grade a kernel program on a task without a matrix."""
        job = self._run(flows.submit_task_evaluation(program, options))
        return self._run(flows.finished_evaluation(job.job_id, on_progress))

    def status(self, job_id: str) -> JobStatus:
        """State of a job, best so far, position in the queue. Raises NotFound."""
        return self._run(flows.status(job_id))

    def cancel(self, job_id: str) -> None:
        """Stop a job. Raises Conflict for one that has ended, NotFound."""
        self._run(flows.cancel(job_id))

    def jobs(self, limit: int = 20, before: str | None = None) -> JobPage:
        """Jobs of both kinds, the newest first; `before` a job, those that were accepted before it. Raises NotFound."""
        return self._run(flows.jobs(limit, before))

    def candidates(self, job_id: str) -> list[TriedCandidate]:
        """What was tried for a job so far, failures included, in the order of grading. Raises NotFound."""
        return self._run(flows.candidates(job_id))

    def permalink(self, job_id: str) -> Permalink:
        """A job's address that opens without a key, for reading alone. Raises NotFound."""
        return self._run(flows.permalink(job_id))

    def artifact(self, job_id: str, kind: ArtifactKind, *, transposed: bool = False) -> bytes:
        """A file of a finished job; of A^T where both directions were tuned. Raises Conflict where there is none,
        NotFound."""
        return self._run(flows.artifact(job_id, kind, transposed=transposed))

    def policy(self) -> PolicyStatus:
        """The policy that candidates are sampled from. Raises NotFound where the server has none."""
        return self._run(flows.policy())

    def signing_key(self) -> SigningKey:
        """What the server's reports are verified with. Raises NotFound where it signs none."""
        return self._run(flows.signing_key())

    def tasks(self) -> tuple[TaskCard, ...]:
        """Tasks that kernels may be asked for, by name."""
        return self._run(flows.tasks())

    def task(self, name: str) -> TaskCard:
        """What a task computes, its axes and operands. Raises NotFound, naming the nearest."""
        return self._run(flows.task(name))

    def roll_back_policy(self, version: int | None = None) -> PolicyStatus:
        """Serve an accepted version again, or the one before; from the server's own machine. Raises NotFound for one
        that was not accepted or is gone, Conflict for the one that serves."""
        return self._run(flows.roll_back_policy(version))

    def is_ready(self) -> bool:
        """Whether the server answers and all of it works, the engine included."""
        return self._run(flows.ready())

    def health(self) -> Health:
        """Whether the server answers and is ready, and what is missing. Never raises Unavailable."""
        return self._run(flows.health())

    def _run(self, flow: Flow[Answer]) -> Answer:
        reply: Reply = None
        while True:
            try:
                step = _advance(flow, reply)
            except StopIteration as end:
                return cast(Answer, end.value)
            match step:
                case Pause(seconds=seconds):
                    time.sleep(seconds)
                    reply = None
                case Call(method=method, path=path, options=options):
                    try:
                        reply = self._http.request(method, path, **options)
                    except httpx.RequestError as error:
                        reply = _no_answer(self._http.base_url, error)


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited."""

    def __init__(
        self, url: str | None = None, headers: Mapping[str, str] | None = None, key: str | None = None
    ) -> None:
        self._http = httpx.AsyncClient(**_connection(url, headers, key))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def tune(
        self,
        matrix: SparseMatrix,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
        *,
        transposed: TransposedOption | None = None,
    ) -> Operator:
        csr, chosen = await asyncio.to_thread(to_scipy, matrix), with_direction(options, transposed)
        job = await self.submit(MATRIX_NAME, await asyncio.to_thread(matrix_file, csr, chosen), chosen)
        report = await self.wait(job.job_id, on_progress)
        return await asyncio.to_thread(operator_of, csr, chosen, report)

    async def tune_file(
        self, name: str, data: bytes, options: TuningOptions | None = None, on_progress: OnProgress | None = None
    ) -> KernelReport:
        return await self.wait((await self.submit(name, data, options)).job_id, on_progress)

    async def submit(self, name: str, data: bytes, options: TuningOptions | None = None) -> JobStatus:
        return await self._run(flows.submit_kernel(name, data, options or TuningOptions()))

    async def submit_task(self, options: TuningOptions) -> JobStatus:
        return await self._run(flows.submit_task(options))

    async def tune_task(self, options: TuningOptions, on_progress: OnProgress | None = None) -> TaskKernel:
        return TaskKernel(await self.wait((await self.submit_task(options)).job_id, on_progress))

    async def wait(self, job_id: str, on_progress: OnProgress | None = None) -> KernelReport:
        return await self._run(flows.finished_kernel(job_id, on_progress))

    async def answered(self, job_id: str, on_progress: OnProgress | None = None) -> JobStatus:
        return await self._run(flows.answered(job_id, on_progress))

    async def watch(self, job_id: str, on_progress: OnProgress | None = None) -> JobStatus:
        return await self._run(flows.ended(job_id, on_progress))

    async def grade(
        self,
        program: str,
        matrix: SparseMatrix,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> EvaluationAnswer:
        data = await asyncio.to_thread(lambda: matrix_file(to_scipy(matrix), options))
        return await self.grade_file(program, MATRIX_NAME, data, options, on_progress)

    async def grade_file(
        self,
        program: str,
        name: str,
        data: bytes,
        options: TuningOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> EvaluationAnswer:
        job = await self.submit_program(program, name, data, options)
        return await self._run(flows.finished_evaluation(job.job_id, on_progress))

    async def submit_program(
        self, program: str, name: str, data: bytes, options: TuningOptions | None = None
    ) -> JobStatus:
        return await self._run(flows.submit_evaluation(program, name, data, options or TuningOptions()))

    async def grade_task(
        self, program: str, options: TuningOptions, on_progress: OnProgress | None = None
    ) -> EvaluationAnswer:
        job = await self._run(flows.submit_task_evaluation(program, options))
        return await self._run(flows.finished_evaluation(job.job_id, on_progress))

    async def status(self, job_id: str) -> JobStatus:
        return await self._run(flows.status(job_id))

    async def cancel(self, job_id: str) -> None:
        await self._run(flows.cancel(job_id))

    async def jobs(self, limit: int = 20, before: str | None = None) -> JobPage:
        return await self._run(flows.jobs(limit, before))

    async def candidates(self, job_id: str) -> list[TriedCandidate]:
        return await self._run(flows.candidates(job_id))

    async def permalink(self, job_id: str) -> Permalink:
        return await self._run(flows.permalink(job_id))

    async def artifact(self, job_id: str, kind: ArtifactKind, *, transposed: bool = False) -> bytes:
        return await self._run(flows.artifact(job_id, kind, transposed=transposed))

    async def policy(self) -> PolicyStatus:
        return await self._run(flows.policy())

    async def signing_key(self) -> SigningKey:
        return await self._run(flows.signing_key())

    async def tasks(self) -> tuple[TaskCard, ...]:
        return await self._run(flows.tasks())

    async def task(self, name: str) -> TaskCard:
        return await self._run(flows.task(name))

    async def roll_back_policy(self, version: int | None = None) -> PolicyStatus:
        return await self._run(flows.roll_back_policy(version))

    async def is_ready(self) -> bool:
        return await self._run(flows.ready())

    async def health(self) -> Health:
        return await self._run(flows.health())

    async def _run(self, flow: Flow[Answer]) -> Answer:
        reply: Reply = None
        while True:
            try:
                step = _advance(flow, reply)
            except StopIteration as end:
                return cast(Answer, end.value)
            match step:
                case Pause(seconds=seconds):
                    await asyncio.sleep(seconds)
                    reply = None
                case Call(method=method, path=path, options=options):
                    try:
                        reply = await self._http.request(method, path, **options)
                    except httpx.RequestError as error:
                        reply = _no_answer(self._http.base_url, error)


def _instant(options: TuningOptions | None) -> TuningOptions:
    return (options or TuningOptions()).model_copy(update={"search": "instant"})


def _status_of(connect: Callable[[], Client], job_id: str) -> JobStatus:
    with connect() as client:
        return client.status(job_id)


def _answer_of(connect: Callable[[], Client], job_id: str) -> KernelReport:
    with connect() as client:
        return client.wait(job_id)


@overload
def tune(
    matrix: SparseMatrix,
    *,
    search: Literal["instant"],
    wait: Literal["first"] = "first",
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    key: str | None = None,
    transposed: Literal["no"] | None = None,
    **options: object,
) -> InstantOperator | Operator: ...


@overload
def tune(
    matrix: SparseMatrix,
    *,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    key: str | None = None,
    transposed: TransposedOption | None = None,
    wait: Literal["best"] = "best",
    **options: object,
) -> Operator: ...


def tune(
    matrix: SparseMatrix,
    *,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    key: str | None = None,
    transposed: TransposedOption | None = None,
    wait: Literal["first", "best"] | None = None,
    **options: object,
) -> InstantOperator | Operator:
    """Tune a kernel for a SciPy, CuPy or torch sparse matrix and wait for it.

    With search="instant" a kernel comes back that is there before the search, and whose `best()` waits for its end;
    with wait="best" it is waited for here.

    `options` are the fields of `sparsesmith_proto.api.TuningOptions`: operation, element_type, num_dense_cols, values,
    deterministic, transposed, transposed_storage, alpha_beta, reorder, gpu, search, budget, refine. `url`, `headers`
    and `key` are those of `Client`. Raises InvalidOption for others.
    """
    chosen = with_direction(tuning_options(**options), transposed)
    with Client(url, headers, key) as client:
        if chosen.search == "instant" and wait != "best":
            refuse_instant(chosen.transposed)
            return client.tune_instantly(matrix, chosen)
        return client.tune(matrix, chosen)


def tune_task(
    task: str, *, url: str | None = None, headers: Mapping[str, str] | None = None, **sizes_and_options: object
) -> TaskKernel:
    """Tune a kernel for a task without a matrix and wait for it: `tune_task("dot", n=2**20)(x, y)`.

    What is no field of `sparsesmith_proto.api.TuningOptions` (element_type, gpu, search, budget, refine, deterministic)
    is the size of an axis. `url` and `headers` are those of `Client`. Raises InvalidOption for an unknown task, naming
    the nearest, and for axes that it does not have or lacks.
    """
    options = {name: value for name, value in sizes_and_options.items() if name in TuningOptions.model_fields}
    axes = {name: value for name, value in sizes_and_options.items() if name not in options}
    chosen = tuning_options(**{"axes": axes, **options, "operation": task})
    with Client(url, headers) as client:
        return client.tune_task(chosen)


def server_url(url: str | None) -> httpx.URL:
    """The given address, else SPARSESMITH_URL, else the local stack. Raises InvalidOption."""
    text = url or os.environ.get("SPARSESMITH_URL") or DEFAULT_URL
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidOption(f"url: {text!r} is not an address: {error}", field="url", value=text) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidOption(f"url: {text!r} is not http://HOST or https://HOST", field="url", value=text)
    return parsed


def _connection(url: str | None, headers: Mapping[str, str] | None, key: str | None) -> dict[str, Any]:
    """What both of httpx's clients are made with. Raises InvalidOption."""
    return {"base_url": server_url(url), "headers": client_headers(headers, os.environ, key), "timeout": TIMEOUT}


def matrix_file(csr: scipy.sparse.csr_matrix, options: TuningOptions | None) -> bytes:
    """The matrix as a compressed SciPy .npz; with ones for values unless the options fix them, since then only the
    pattern chooses the kernel."""
    is_fixed = options is not None and options.values == "fixed"
    values = csr.data if is_fixed else np.ones(csr.nnz, np.int8)
    buffer = io.BytesIO()
    scipy.sparse.save_npz(buffer, scipy.sparse.csr_matrix((values, csr.indices, csr.indptr), shape=csr.shape))
    return buffer.getvalue()


def _advance(flow: Flow[Answer], reply: Reply) -> Call | Pause:
    """The flow's next step, given what its last one brought. Raises StopIteration with the flow's answer."""
    if isinstance(reply, Unavailable):
        return flow.throw(reply)
    return next(flow) if reply is None else flow.send(reply)


def _no_answer(url: httpx.URL, error: httpx.RequestError) -> Unavailable:
    return Unavailable(
        f"no sparsesmith server answers at {url} ({type(error).__name__}): is `sparsesmith up` running?",
        field="url",
        value=url,
    )
