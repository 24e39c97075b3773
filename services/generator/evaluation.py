"""The story of a user's own program: one candidate through the evaluators, or its knobs' settings, the best of them."""

import asyncio
from collections.abc import Awaitable, Callable

from services.generator.orders import order_knobs
from services.generator.search.grading import Evaluations
from services.generator.search.programs import KnobSearch, ProgramTask, answer_of
from services.generator.search.trials import Trials
from sparsesmith_proto.api import EvaluationAnswer, Running
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, UserWritten


async def evaluate_program(
    task: ProgramTask, evaluations: Evaluations, trials: Trials, tell: Callable[[Running], Awaitable[None]]
) -> EvaluationAnswer:
    """What became of the program, beside the library's routines for the same workload; of one with knobs, of its best
    setting within the budget.

    Raises Unavailable where no evaluator could grade it, LimitExceeded where the workload is beyond the device.
    """
    await trials.begin(task.job_id)
    if not order_knobs(task.order):
        candidate = Candidate(candidate_id="user", program=task.order.program, origin=UserWritten())
        job = EvaluationJob(
            job_id=task.run_id, workload=task.order.workload, candidates=(candidate,), gpu=task.order.gpu
        )
        report = await evaluations.grade(job)
        await trials.keep(task.job_id, report, task.elapsed_s)
        return answer_of(task, report, report.evaluations[0], None)
    search = await asyncio.to_thread(KnobSearch, task)
    await tell(search.running())
    while batch := search.next_batch():
        report = await evaluations.grade(search.job(batch))
        search.add(report)
        await trials.keep(task.job_id, report, task.elapsed_s)
        await tell(search.running())
    return search.answer()
