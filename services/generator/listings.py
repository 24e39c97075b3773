"""What a program became: its PTX, made again by an evaluator when somebody asks."""

import asyncio
from typing import assert_never

from services.generator.gpus import Gpus
from services.generator.jobs.ledger import Ledger
from services.generator.search.evaluations import QueuedEvaluations
from services.generator.search.trials import Trials
from sparsesmith.errors import Conflict, Unavailable
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import (
    Cancelled,
    EvaluationAnswer,
    Failed,
    Finished,
    Graded,
    InstantKernel,
    JobStatus,
    KernelReport,
    LibraryAnswer,
    Listing,
    Queued,
    Running,
    TunedAnswer,
)
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, Passed, UserWritten

MAX_LISTINGS = 2
"""Made at a time; other requests wait for their turn."""
PATIENCE_S = 60.0
CANDIDATE = "listed"


class Listings:
    """The queue keeps a report for half an hour: asked for again within that, a program is not compiled again."""

    def __init__(self, ledger: Ledger, trials: Trials, evaluations: QueuedEvaluations, gpus: Gpus) -> None:
        self._ledger = ledger
        self._gpus = gpus
        self._trials = trials
        self._evaluations = evaluations
        self._turns = asyncio.Semaphore(MAX_LISTINGS)

    async def of(self, job_id: str, number: int | None) -> Listing:
        """Of a candidate that passed; None: of the answer's program.

        Raises NotFound, also where the matrix is not stored any more, Conflict for a program that did not pass,
        Unavailable where no evaluator has time for it.
        """
        job = await self._ledger.job(job_id)
        text = await self._answers_program(job_id) if number is None else await self._tried_program(job_id, number)
        name = "answer" if number is None else str(number)
        question = EvaluationJob(
            job_id=f"{job_id}.listing.{name}",
            workload=job.order.workload,
            candidates=(Candidate(candidate_id=CANDIDATE, program=text, origin=UserWritten()),),
            budget_s=PATIENCE_S,
            patience_s=PATIENCE_S,
            listings=True,
            gpu=await self._gpu(job_id),
        )
        async with self._turns:
            await self._ledger.problem(job.order.workload)
            return await self._made(question)

    async def _made(self, question: EvaluationJob) -> Listing:
        try:
            async with asyncio.timeout(PATIENCE_S):
                report = await self._evaluations.grade(question)
        except TimeoutError as error:
            raise Unavailable(f"no evaluator had time within {PATIENCE_S:.0f} s", field="listing") from error
        ptx = report.listings.get(CANDIDATE)
        if ptx is None:
            outcome = report.evaluations[0].outcome.outcome
            raise Conflict(f"the program did not pass this time: {outcome}", field="outcome", value=outcome)
        program = extract_program(report.evaluations[0].candidate.program)
        return Listing(program=program, ptx=ptx, architecture=report.device.architecture)

    async def _gpu(self, job_id: str) -> str | None:
        """The kind that the program was timed on, where it is there; None: any, the answer says of which."""
        gpu = graded_on(await self._ledger.status(job_id))
        return gpu if gpu in await self._gpus.names() else None

    async def _tried_program(self, job_id: str, number: int) -> str:
        tried = await self._trials.one(job_id, number)
        if not isinstance(tried.outcome, Passed):
            outcome = tried.outcome.outcome
            raise Conflict(f"candidate {number} did not pass: {outcome}", field="number", value=number)
        return tried.program

    async def _answers_program(self, job_id: str) -> str:
        program = program_of(await self._ledger.status(job_id))
        if program is None:
            raise Conflict(f"job {job_id} has no program that passed", field="job_id", value=job_id)
        return program


def graded_on(status: JobStatus) -> str | None:
    """Kind of GPU of a job's report; None where it has none yet."""
    match status.status:
        case Finished(report=KernelReport(device=device)) | Graded(answer=EvaluationAnswer(device=device)):
            return device.gpu
        case Running(instant=InstantKernel(device=device)):
            return device.gpu
        case _:
            return None


def program_of(status: JobStatus) -> str | None:
    """The best program of a job so far; None where none passed."""
    match status.status:
        case Running(best_program=None, instant=InstantKernel(state="checked" | "confirmed", candidate=candidate)):
            return candidate.program
        case Running(best_program=program):
            return program
        case Finished(report=KernelReport(answer=TunedAnswer(best=best))):
            return best.candidate.program
        case Finished(report=KernelReport(answer=LibraryAnswer(closest=closest))):
            return None if closest is None else closest.candidate.program
        case Graded(answer=answer):
            evaluation = answer.evaluation
            return evaluation.candidate.program if isinstance(evaluation.outcome, Passed) else None
        case Queued() | Failed() | Cancelled() | Finished():
            return None
        case state:
            assert_never(state)
