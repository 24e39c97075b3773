"""What was accepted: a request checked to the end, small enough to store, its matrix kept apart by digest."""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith_proto.api import TuningOptions
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Message, ProgramText


@dataclass(frozen=True, eq=False)
class OrderedMatrix:
    """What an order is about; stored apart from it."""

    pattern: Pattern
    values: FixedValues | None
    """Where the order fixes them."""


class KernelOrder(Message):
    """Tune a kernel."""

    kind: Literal["kernel"] = "kernel"
    workload: Workload
    options: TuningOptions
    use_cache: bool = True


class EvaluationOrder(Message):
    """Grade a user's program."""

    kind: Literal["evaluation"] = "evaluation"
    workload: Workload
    program: ProgramText


Order = Annotated[KernelOrder | EvaluationOrder, Field(discriminator="kind")]


def entries_touched(pattern: Pattern, workload: Workload) -> int:
    """By one product: of A and of the dense operands. What sizes of jobs are compared by."""
    return pattern.nnz + (pattern.num_rows + pattern.num_cols) * workload.num_dense_cols


def fingerprint(order: KernelOrder | EvaluationOrder) -> str:
    """Equal for two requests that ask for the same, however they were written; what an Idempotency-Key stands for."""
    return hashlib.sha256(order.model_dump_json().encode()).hexdigest()
