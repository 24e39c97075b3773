"""One run of a kernel order: what the search, the grading and the verdict all need to know."""

import time
from dataclasses import dataclass, field, replace

from services.generator.orders import KernelOrder, work_a_candidate
from sparsesmith.operations import Problem
from sparsesmith.transport.gpu_kinds import GpuKind
from sparsesmith_proto.kernel import Candidate


@dataclass(frozen=True)
class TuningTask:
    """A kernel order that is being worked on. A restart makes a new task of the same job, with a budget of its own."""

    job_id: str
    run_id: str
    """Differs for each run of a job, so that evaluation jobs of a killed run are never taken for those of this one."""
    order: KernelOrder
    problem: Problem
    waited_s: float = 0.0
    """From acceptance to the start of this run."""
    started: float = field(default_factory=time.monotonic)
    lead: Candidate | None = None
    """A program that was handed out before the search: graded first, and proposed no more."""
    gpu: GpuKind | None = None
    """The kind that the order names, as far as it is known. None: any."""

    @property
    def work_a_candidate(self) -> int:
        """See `orders.work_a_candidate`."""
        return work_a_candidate(self.problem)

    @property
    def elapsed_s(self) -> float:
        """Since the start of this run."""
        return time.monotonic() - self.started

    def led_by(self, lead: Candidate) -> "TuningTask":
        """The same with a program that was handed out."""
        return replace(self, lead=lead)

    @property
    def device(self) -> str | None:
        """Name of the device that the order is for; None: any."""
        return None if self.gpu is None else self.gpu.device

    @property
    def tuning_s(self) -> float:
        """Since the request was accepted, its matrix parsed: all that a user waits for."""
        return self.waited_s + self.elapsed_s

    @property
    def wants_profiles(self) -> bool:
        """Whether a writer is told in words what programs do with the device."""
        options = self.order.options
        asks_a_model = options.search == "refine" and options.refine.writer not in (None, "mutate", "policy")
        return asks_a_model and options.refine.feedback != "latency"

    @property
    def left_s(self) -> float:
        """Of the budget's seconds; negative once they are spent."""
        return self.order.options.budget.seconds - self.elapsed_s
