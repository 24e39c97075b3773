"""What was accepted: a request checked to the end, small enough to store; its matrix, if any, kept apart by digest."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from sparsesmith.errors import InvalidProgram
from sparsesmith.operations import Problem
from sparsesmith.operations.directions import transposed_problem
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.numbers import Knob, knobs_of, num_settings
from sparsesmith_proto.api import Budget, JobState, JobStatus, Refinement, TuningOptions
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Gpu, Message, ProgramText


class KernelOrder(Message):
    """Tune a kernel."""

    kind: Literal["kernel"] = "kernel"
    workload: Workload
    options: TuningOptions
    use_cache: bool = True
    transposed: Workload | None = None
    """Of A^T, where it is tuned beside A within the same budget."""
    work: int | None = None
    """See `work_of`. None: an earlier release stored the order."""

    def describe(self) -> str:
        """For the audit log."""
        both = "" if self.transposed is None else " and its transpose"
        return f"tune {_described(self.workload)}{both}, {self.options.budget.candidates} candidates"

    @property
    def directions(self) -> tuple[Workload, ...]:
        """What is tuned, A first; one where both are the same question: A^T has the pattern of A."""
        return tuple(dict.fromkeys((self.workload, self.transposed or self.workload)))

    def of_direction(self, workload: Workload) -> "KernelOrder":
        """The order of one of them alone, with its share of the budget: the same each time it is asked, so that its
        answer is found in the cache."""
        budget, number = self.options.budget, len(self.directions)
        share = Budget(candidates=-(-budget.candidates // number), seconds=budget.seconds / number)
        usual = {"transposed": "no", "transposed_storage": "copy", "budget": share}
        options = self.options.model_copy(update=usual)
        return self.model_copy(update={"workload": workload, "options": options, "transposed": None})

    @property
    def wanted_gpu(self) -> str | None:
        """The kind of GPU that it is for, as it was asked for until the order is accepted. None: any."""
        return self.options.gpu

    def on(self, gpu: str | None) -> "KernelOrder":
        """The same for a kind of GPU."""
        return self.model_copy(update={"options": self.options.model_copy(update={"gpu": gpu})})


class EvaluationOrder(Message):
    """Grade a user's program."""

    kind: Literal["evaluation"] = "evaluation"
    workload: Workload
    program: ProgramText
    budget: Budget = Budget()
    """Of a program with knobs."""
    gpu: Gpu | None = Field(default=None, exclude_if=lambda gpu: gpu is None)
    """The kind of GPU to grade it on. None: any."""
    work: int | None = None
    """See `work_of`. None: an earlier release stored the order."""

    def describe(self) -> str:
        """For the audit log; names the program by its digest."""
        return f"grade {_described(self.workload)}, program {hashlib.sha256(self.program.encode()).hexdigest()[:12]}"

    @property
    def directions(self) -> tuple[Workload, ...]:
        """See KernelOrder.directions."""
        return (self.workload,)

    @property
    def wanted_gpu(self) -> str | None:
        """See KernelOrder.wanted_gpu."""
        return self.gpu

    def on(self, gpu: str | None) -> "EvaluationOrder":
        """The same for a kind of GPU."""
        return self.model_copy(update={"gpu": gpu})


Order = Annotated[KernelOrder | EvaluationOrder, Field(discriminator="kind")]


def _described(workload: Workload) -> str:
    matrix = "" if workload.pattern is None else f" of matrix {workload.pattern[:12]}"
    return f"{workload.operation} {workload.element_type}{matrix}"


def directions_of(order: KernelOrder | EvaluationOrder, problem: Problem) -> tuple[Problem, ...]:
    """The problems of its directions. `problem`: of A."""
    if len(order.directions) == 1 or not isinstance(order, KernelOrder):
        return (problem,)
    return problem, transposed_problem(problem, order.options.transposed_storage)


@dataclass(frozen=True)
class AcceptedJob:
    """A job that must be answered."""

    job_id: str
    accepted_at: datetime
    order: Order

    @property
    def age_s(self) -> float:
        return (datetime.now(UTC) - self.accepted_at).total_seconds()

    def new_run_id(self) -> str:
        """Of one run of the job: what it leaves in other queues is told from that of earlier, killed runs."""
        return f"{self.job_id}.{secrets.token_hex(4)}"

    def status(self, state: JobState) -> JobStatus:
        return JobStatus(job_id=self.job_id, accepted_at=self.accepted_at.isoformat(), status=state)


WORK_A_CANDIDATE = 100_000
"""What compiling and checking a candidate costs however small the matrix, in entries that a product touches."""


def work_a_candidate(problem: Problem) -> int:
    """What sizes of jobs are compared by: entries of A and of the operands that a product touches, multiply-adds of a
    task where there are more of them, and a constant."""
    touched = problem.nnz + problem.num_elements
    return WORK_A_CANDIDATE + (touched if problem.matrix is not None else max(touched, problem.num_products))


def work_of(order: KernelOrder | EvaluationOrder, problem: Problem) -> int:
    """Of all candidates that an order allows."""
    return most_candidates(order) * work_a_candidate(problem)


def most_candidates(order: KernelOrder | EvaluationOrder) -> int:
    """That may be graded for an order."""
    if isinstance(order, KernelOrder):
        return order.options.budget.candidates
    return min(order.budget.candidates, num_settings(order_knobs(order)))


def order_knobs(order: EvaluationOrder) -> tuple[Knob, ...]:
    """Of the program; none where they are malformed, which the evaluator tells of."""
    try:
        return knobs_of(extract_program(order.program))
    except InvalidProgram:
        return ()


def fingerprint(order: KernelOrder | EvaluationOrder) -> str:
    """Equal for two requests that ask for the same, however they were written; what an Idempotency-Key stands for."""
    return hashlib.sha256(order.model_dump_json(exclude=_left_out(order)).encode()).hexdigest()


def _left_out(order: KernelOrder | EvaluationOrder) -> dict[str, bool | dict[str, bool]]:
    """Options that are as usual: orders of releases before them keep their fingerprints."""
    left_out: dict[str, bool | dict[str, bool]] = {"work": True}
    if isinstance(order, EvaluationOrder) and order.budget == Budget():
        left_out["budget"] = True
    if isinstance(order, KernelOrder) and order.transposed is None:
        left_out["transposed"] = True
    if isinstance(order, KernelOrder) and order.options.refine == Refinement():
        left_out["options"] = {"refine": True}
    return left_out
