"""`sparsesmith status, watch, list, cancel, candidates, health`: jobs and the server that has them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import assert_never

from sparsesmith.cli.answers import print_report, save_answer
from sparsesmith.cli.columns import columns
from sparsesmith.cli.progress import Progress, describe
from sparsesmith.cli.rendering import describe_origin, show_evaluation
from sparsesmith.cli.terminal import console, errors
from sparsesmith.cli.visible import visible
from sparsesmith.client import Client
from sparsesmith.client.flows import unfinished
from sparsesmith.errors import Conflict, NotFound
from sparsesmith_proto.api import Cancelled, Failed, Finished, Graded, JobStatus, Queued, Running, TriedCandidate
from sparsesmith_proto.kernel import Passed, Workload

READY = 0
NOT_READY = 4


def job_id_of(text: str) -> str:
    """The id in an id or in a job's address (`/v1/kernels/ID`, with or without the server)."""
    return text.rstrip("/").rpartition("/")[2]


def show_status(client: Client, job: str, *, as_json: bool) -> None:
    """A job's state in one line."""
    found = client.status(job_id_of(job))
    print(found.model_dump_json(indent=2) if as_json else f"{found.job_id}  {visible(describe(found.status))}")


def watch_job(client: Client, job: str, *, out: Path | None, as_json: bool) -> None:
    """Follow a job to its end and show the answer. Raises what went wrong with it, Conflict if it was cancelled."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with Progress(errors, quiet=as_json) as progress:
        ended = client.watch(job_id_of(job), _JsonLines().update if as_json else progress.update)
    _show_end(client, ended, out, quiet=as_json)


def show_jobs(client: Client, limit: int, before: str | None, *, as_json: bool) -> None:
    """A page of the server's jobs, the newest first. Raises NotFound for a `before` that is not there."""
    page = client.jobs(limit, None if before is None else job_id_of(before))
    if as_json:
        print(page.model_dump_json(indent=2))
        return
    rows = [
        (job.job_id, job.accepted_at[:19], job.state, job.kind, _workload(job.workload), _speedup(job.best_speedup))
        for job in page.jobs
    ]
    print(columns(("job", "accepted (UTC)", "state", "what", "workload", "speed-up"), rows, right=("speed-up",)))
    if page.next_before is not None:
        print(f"older ones: sparsesmith list --before {page.next_before}")


def show_candidates(client: Client, job: str, program: int | None, *, as_json: bool) -> None:
    """What was tried for a job, in the order of grading; with `program` the text of that one, as it was proposed.

    Raises NotFound.
    """
    job_id = job_id_of(job)
    tried = client.candidates(job_id)
    if program is not None:
        tried = [candidate for candidate in tried if candidate.number == program]
        if not tried:
            raise NotFound(f"job {job_id} has no candidate {program}", field="program", value=program)
    if as_json:
        print(json.dumps([candidate.model_dump(mode="json") for candidate in tried], indent=2))
    elif program is not None:
        print(visible(tried[0].program))
    else:
        title = ("number", "s", "outcome", "us", "written by", "message")
        print(columns(title, [_tried(candidate) for candidate in tried], right=("number", "s", "us")))


def cancel_jobs(client: Client, jobs: Sequence[str], *, as_json: bool) -> None:
    """Cancel each. Raises Conflict for one that has ended, NotFound."""
    for job in jobs:
        job_id = job_id_of(job)
        client.cancel(job_id)
        print(client.status(job_id).model_dump_json() if as_json else f"{job_id}  cancelled")


def show_health(client: Client, *, as_json: bool) -> int:
    """Whether the server answers and is ready; the exit code."""
    health = client.health()
    if as_json:
        print(json.dumps({"url": client.url, **asdict(health)}, indent=2))
    else:
        print(f"{client.url}  {visible(health.describe())}")
    return READY if health.is_ready else NOT_READY


def _workload(workload: Workload) -> str:
    wide = f" x {workload.num_dense_cols}" if workload.num_dense_cols != 1 else ""
    return f"{workload.operation} {workload.element_type}{wide}"


def _speedup(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"


def _tried(candidate: TriedCandidate) -> tuple[str, ...]:
    """A row: whole messages are in --json."""
    outcome = candidate.outcome
    us = f"{outcome.timing.median_us:.2f} {outcome.timing.kind}" if isinstance(outcome, Passed) else ""
    message = (candidate.message or "").strip().partition("\n")[0]
    origin = describe_origin(candidate.origin)
    return str(candidate.number), f"{candidate.graded_s:.1f}", outcome.outcome, us, origin, message


class _JsonLines:
    """Each state on a line of its own, once."""

    def __init__(self) -> None:
        self._last: JobStatus | None = None

    def update(self, job: JobStatus) -> None:
        if job != self._last:
            print(job.model_dump_json(), flush=True)
        self._last = job


def _show_end(client: Client, job: JobStatus, out: Path | None, *, quiet: bool) -> None:
    match job.status:
        case Finished(report=report):
            if not quiet:
                print_report(report, as_json=False)
            if out is not None:
                save_answer(client, job.job_id, report, out, quiet=quiet)
        case Graded(answer=answer):
            if not quiet:
                show_evaluation(console, answer)
            if out is not None:
                raise Conflict(f"job {job.job_id} graded a program: it has no files", field="out", value=out)
        case Failed() | Cancelled() | Queued() | Running():
            raise unfinished(job)
        case _:
            assert_never(job.status)
