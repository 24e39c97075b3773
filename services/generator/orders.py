"""What was accepted: a request checked to the end, small enough to store; its matrix, if any, kept apart by digest."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from sparsesmith.operations import Problem
from sparsesmith_proto.api import TuningOptions
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Message, ProgramText


class KernelOrder(Message):
    """Tune a kernel."""

    kind: Literal["kernel"] = "kernel"
    workload: Workload
    options: TuningOptions
    use_cache: bool = True
    work: int | None = None
    """See `work_of`. None: an earlier release stored the order."""


class EvaluationOrder(Message):
    """Grade a user's program."""

    kind: Literal["evaluation"] = "evaluation"
    workload: Workload
    program: ProgramText
    work: int | None = None
    """See `work_of`. None: an earlier release stored the order."""


Order = Annotated[KernelOrder | EvaluationOrder, Field(discriminator="kind")]


WORK_A_CANDIDATE = 100_000
"""What compiling and checking a candidate costs however small the matrix, in entries that a product touches."""


def work_a_candidate(problem: Problem) -> int:
    """What sizes of jobs are compared by: entries of A and of the operands that a product touches, multiply-adds of a
    task where there are more of them, and a constant."""
    touched = problem.nnz + problem.num_elements
    return WORK_A_CANDIDATE + (touched if problem.matrix is not None else max(touched, problem.num_products))


def work_of(order: KernelOrder | EvaluationOrder, problem: Problem) -> int:
    """Of all candidates that an order allows."""
    num_candidates = order.options.budget.candidates if isinstance(order, KernelOrder) else 1
    return num_candidates * work_a_candidate(problem)


def fingerprint(order: KernelOrder | EvaluationOrder) -> str:
    """Equal for two requests that ask for the same, however they were written; what an Idempotency-Key stands for."""
    return hashlib.sha256(order.model_dump_json(exclude={"work"}).encode()).hexdigest()
