"""The story of a user's own program: one candidate through the evaluators."""

import time

from services.generator.orders import AcceptedJob, EvaluationOrder
from services.generator.tools import Tools
from sparsesmith_proto.api import EvaluationAnswer
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, UserWritten


async def evaluate_program(job: AcceptedJob, order: EvaluationOrder, tools: Tools) -> EvaluationAnswer:
    """What became of the program, beside the library's routines for the same workload.

    However long it takes: nothing else is tried meanwhile. Raises Unavailable where no evaluator could grade it,
    LimitExceeded where the workload is beyond the device.
    """
    candidate = Candidate(candidate_id="user", program=order.program, origin=UserWritten())
    await tools.trials.begin(job.job_id)
    started = time.monotonic()
    report = await tools.evaluations.grade(
        EvaluationJob(job_id=job.new_run_id(), workload=order.workload, candidates=(candidate,))
    )
    await tools.trials.keep(job.job_id, report, time.monotonic() - started)
    return EvaluationAnswer(
        workload=order.workload,
        evaluation=report.evaluations[0],
        baselines=report.baselines,
        device=report.device,
    )
