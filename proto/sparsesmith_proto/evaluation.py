"""Hop generator -> evaluator (RQ job) and back (the job's result)."""

from typing import Annotated, Literal

from pydantic import Field

from sparsesmith_proto.kernel import (
    Baselines,
    Candidate,
    Checked,
    CompileFailed,
    Crashed,
    DeviceDescription,
    Evaluation,
    Mismatch,
    Rejected,
    TimedOut,
    Workload,
)
from sparsesmith_proto.message import Bytes, Gpu, Identifier, Message, Seconds


def _is_none(value: object) -> bool:
    return value is None


MAX_CANDIDATES_A_JOB = 256


class EvaluationJob(Message):
    """Grade these candidates on this workload. Idempotent: grading twice gives the same answer, but for noise."""

    job_id: Identifier
    workload: Workload
    candidates: tuple[Candidate, ...] = Field(min_length=1, max_length=MAX_CANDIDATES_A_JOB)
    budget_s: Seconds = Field(default=300, gt=0, le=3600)
    """From when an evaluator takes the job, whatever the stage; candidates not reached in it come back TimedOut,
    at stage `turn`."""
    patience_s: Seconds | None = Field(default=None, gt=0)
    """From submission: how long the report is waited for; the job ends in time for it. None: for ever."""
    turn_s: Seconds | None = Field(default=None, gt=0)
    """After so much grading, if other jobs wait, the job ends with what it has. None: never."""
    search: Identifier | None = None
    """Jobs of one search: a text that an evaluator graded for an earlier one of them is not graded by it again, and all
    of them are graded on one kind of GPU."""
    best_us: float | None = Field(default=None, gt=0, allow_inf_nan=False, exclude_if=_is_none)
    """Of the fastest program of the search so far, timed at length: none that is clearly slower needs to be."""
    gpu: Gpu | None = Field(default=None, exclude_if=_is_none)
    """The kind of GPU that shall grade it, by the whole name. None: any, of a search the one that has it."""
    work: int | None = Field(default=None, ge=0)
    """Entries that one product touches, times the candidates: jobs of much less go first, within a bound. None: not
    known, counts as much."""
    listings: bool = False
    """Whether the report shall hold the PTX of the candidates that passed."""
    profiles: bool = Field(default=False, exclude_if=lambda asked: not asked)
    """Whether it shall say what they do with the device."""


class LineWork(Message):
    """What one line of a program did, as the interpreter counted it."""

    line: int = Field(ge=1)
    warp_instructions: int = Field(ge=0)
    lane_instructions: int = Field(ge=0)
    """32 times the former where no warp diverged."""
    sectors: int = Field(ge=0)
    """Of 32 bytes of device memory that it asked for."""
    bank_conflicts: int = Field(ge=0)
    """Passes of shared memory beyond one a request."""


class LaunchWork(Message):
    """What one launch did, as the interpreter counted it. Requests are warp instructions."""

    warp_instructions: int = Field(ge=0)
    lane_instructions: int = Field(ge=0)
    load_requests: int = Field(ge=0)
    load_sectors: int = Field(ge=0)
    store_requests: int = Field(ge=0)
    store_sectors: int = Field(ge=0)
    atomic_requests: int = Field(ge=0)
    atomic_sectors: int = Field(ge=0)
    unique_sectors: int = Field(ge=0)
    """Different sectors read or written at least once."""
    shared_requests: int = Field(ge=0)
    shared_wavefronts: int = Field(ge=0)
    local_requests: int = Field(ge=0)
    barriers: int = Field(ge=0)
    divergent_branches: int = Field(ge=0)
    longest_warp_instructions: int = Field(ge=0)
    longest_warp_waits: int = Field(ge=0)
    """Times that the slowest warp waited for a value from device memory."""
    lines: tuple[LineWork, ...] = ()
    """The busiest first."""


class LaunchProfile(Message):
    """One launch line of a program."""

    kernel: str
    num_blocks: int = Field(ge=1)
    threads_a_block: int = Field(ge=1)
    registers: int = Field(ge=0)
    spill_bytes: Bytes
    shared_bytes: Bytes
    """Of a block, what the launch line asks for included."""
    occupancy: float = Field(ge=0, le=1)
    """Share of a multiprocessor's warps that its registers, shared memory and threads leave room for."""
    work: LaunchWork | None = None
    """None: nothing counted it."""


class Profile(Message):
    """What a program does with the device, found without counters of the hardware."""

    candidate_id: Identifier
    launches: tuple[LaunchProfile, ...] = Field(min_length=1)


class EvaluationReport(Message):
    """What an evaluator measured: one evaluation a candidate, in the order given."""

    job_id: Identifier
    device: DeviceDescription
    baselines: Baselines
    evaluations: tuple[Evaluation, ...]
    csr_bytes: Bytes
    """Device memory of the workload's matrix in CSR, for comparison with each `format_bytes`; of a task without a
    matrix, of its operands."""
    seconds: Seconds
    """Wall time of the batch on the evaluator, from its inputs on."""
    stages_ms: dict[str, float] = Field(default_factory=dict, exclude_if=lambda stages: not stages)
    """Wall time of the whole job by stage: `load`, `open` (the workload on the device), `baselines` where they were not
    known, `read`, `draw`, `formats`, `candidates` (what is neither this nor named waited for compilers), `finals`,
    `inspections`."""
    listings: dict[str, str] = Field(default_factory=dict)
    """PTX by candidate_id, of those that passed, where the job asked for it; `.loc 1 N 0` stands before what line N of
    the program became."""
    profiles: tuple[Profile, ...] = Field(default=(), exclude_if=lambda profiles: not profiles)
    """Of those that passed, where the job asked for them."""


class InstantJob(Message):
    """Build and compile one program and check it on one input, at once: nothing is timed, no baseline looked at."""

    kind: Literal["instant"] = "instant"
    job_id: Identifier
    workload: Workload
    candidate: Candidate
    budget_s: Seconds = Field(default=30, gt=0, le=3600)
    work: int = Field(default=0, ge=0)
    """As of an EvaluationJob: a kernel that is wanted at once goes before batches that wait."""
    search: Identifier | None = Field(default=None, exclude_if=_is_none)
    """As of an EvaluationJob: the search behind the kernel is of the GPU that it was checked on."""
    gpu: Gpu | None = Field(default=None, exclude_if=_is_none)
    """As of an EvaluationJob."""


FirstOutcome = Annotated[
    Checked | Rejected | CompileFailed | Mismatch | Crashed | TimedOut, Field(discriminator="outcome")
]


class InstantReport(Message):
    """What became of the program of an InstantJob."""

    kind: Literal["instant"] = "instant"
    job_id: Identifier
    device: DeviceDescription
    candidate: Candidate
    """As it was checked, its numbers filled in."""
    outcome: FirstOutcome
    stages_ms: dict[str, float]
    """Wall time by stage, some of which overlap."""
    seconds: Seconds
    """From taking the job to this report."""
