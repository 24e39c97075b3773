"""Hop client <-> generator: the bodies of the HTTP interface, version 1."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from sparsesmith_proto.kernel import (
    Baselines,
    Candidate,
    Checked,
    CompileFailed,
    DeviceDescription,
    DeviceKind,
    EstimatedTiming,
    Evaluation,
    FromFamily,
    Mutated,
    Outcome,
    Passed,
    ProbeWritten,
    UserWritten,
    Workload,
    Written,
)
from sparsesmith_proto.message import (
    Architecture,
    Axes,
    Bytes,
    Digest,
    ElementType,
    Gpu,
    Identifier,
    Message,
    Microseconds,
    Operation,
    PolicyVersion,
    ProgramText,
    Seconds,
)
from sparsesmith_proto.policy import PolicyAnnouncement, Verdict, VersionTaken
from sparsesmith_proto.words import ReorderOption as ReorderOption
from sparsesmith_proto.words import SearchStrategy as SearchStrategy
from sparsesmith_proto.words import TransposedOption as TransposedOption
from sparsesmith_proto.words import TransposedStorage as TransposedStorage
from sparsesmith_proto.words import ValuesOption as ValuesOption


def _is_none(value: object) -> bool:
    return value is None


def _is_false(value: object) -> bool:
    return value is False


def _none_if_empty(given: object) -> object:
    """Of a form's field that was left empty."""
    return None if given == "" else given


RequestedGpu = Annotated[Gpu | None, BeforeValidator(_none_if_empty)]


class Budget(Message):
    """How much a request may spend; the search ends when either is used up."""

    candidates: int = Field(default=64, ge=1, le=4096)
    seconds: Seconds = Field(default=120, gt=0, le=3600)


PRESETS: Mapping[str, Mapping[str, int]] = {"fsr": {"children": 5, "generations": 5, "beam": 1}}
"""How far known loops go: FSR asks for five children of the fastest program, down to a depth of five."""


Feedback = Literal["latency", "profile", "suggestions"]
"""Each tells what the one before it tells, and more: its time and share of the floor; its profile; what to try."""


class Refinement(Message):
    """How far `search="refine"` goes: the loop of generating, grading and changing what was found."""

    preset: Literal["fsr"] | None = Field(default=None, exclude_if=_is_none)
    """The numbers below as a known loop has them; given beside it they must be the same."""
    children: int = Field(default=8, ge=1, le=256)
    """Of each program that is refined."""
    generations: int = Field(default=6, ge=1, le=64)
    """Changes from the first programs to the last."""
    beam: int = Field(default=4, ge=1, le=64)
    """Programs that are refined: the fastest so far."""
    writer: Identifier | None = Field(default=None, exclude_if=_is_none)
    """Who changes programs: `mutate`, no model; `policy`, the service's policy, shown the program and its report;
    `text`, the service's own language model, asked in words; `endpoint`, the model behind the address that the service
    was given. None: mutate."""
    feedback: Feedback = Field(default="suggestions", exclude_if=lambda feedback: feedback == "suggestions")
    """What a model is told of a program that passed."""

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, given: object) -> object:
        preset = given.get("preset") if isinstance(given, Mapping) else None
        if not isinstance(given, Mapping) or not isinstance(preset, str) or preset not in PRESETS:
            return given
        for name, number in PRESETS[preset].items():
            if str(given.get(name, number)) != str(number):
                raise ValueError(f"{name} is {given[name]}: the preset {preset} has {number}")
        return {**given, **PRESETS[preset]}


class TuningOptions(Message):
    """What a user may choose beside the matrix; the same names are form fields of an upload."""

    operation: Operation = "spmv"
    element_type: ElementType = "float32"
    num_dense_cols: int = Field(default=1, ge=1, le=1024)
    axes: Axes = Field(default={}, exclude_if=lambda axes: not axes)
    """Sizes that the operation has beside those of a matrix and `num_dense_cols`."""
    values: ValuesOption = "any"
    deterministic: bool = Field(default=False, exclude_if=_is_false)
    """Kernels that give equal bits for equal inputs, and comparison with such routines alone."""
    transposed: TransposedOption = Field(default="no", exclude_if=lambda which: which == "no")
    """`yes`: a kernel for A^T in the place of A. `both`: one for each, within one budget."""
    transposed_storage: TransposedStorage = Field(default="copy", exclude_if=lambda storage: storage == "copy")
    """What a kernel for A^T reads. `shared`: A as it is stored, so that no second copy of it is needed."""
    alpha_beta: bool = Field(default=False, exclude_if=_is_false)
    """What is graded and timed is y = alpha A x + beta y."""
    reorder: ReorderOption = Field(default="keep", exclude_if=lambda choice: choice == "keep")
    """`allowed`: programs, too, that number rows and columns anew, and copy x within what is timed. What is computed is
    y = A x as it was asked for."""
    gpu: RequestedGpu = Field(default=None, exclude_if=_is_none)
    """The kind of GPU to tune for, as `GET /v1/fleet` lists them. None: any that is there."""
    search: SearchStrategy = "auto"
    budget: Budget = Budget()
    refine: Refinement = Refinement()


class MatrixIndices(Message):
    """A sparsity pattern as index lists. Zero-based. Duplicates are merged, as SciPy's `sum_duplicates` does."""

    num_rows: int = Field(ge=1, lt=2**31)
    num_cols: int = Field(ge=1, lt=2**31)
    row_indices: list[int]
    col_indices: list[int]
    values: list[float] | None = None
    """One for each pair of indices, for `values="fixed"`. Those of duplicates are added up."""


def check_subject(matrix: object, task: str | None) -> None:
    """Raises ValueError unless a request names one of the two."""
    if (matrix is None) == (task is None):
        raise ValueError(f"matrix and task: {'neither' if task is None else 'both'} given, one is needed")


class KernelRequest(TuningOptions):
    """`POST /v1/kernels` as JSON: for a matrix, or for a task with its axes."""

    matrix: MatrixIndices | None = Field(default=None, exclude_if=_is_none)
    task: Operation | None = Field(default=None, exclude_if=_is_none)
    """In the place of `matrix` and `operation`: an operation that has no matrix."""

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> "KernelRequest":
        check_subject(self.matrix, self.task)
        return self


class EvaluationOptions(Message):
    """What a user sends beside the matrix to have a program of their own graded; the same names are form fields."""

    operation: Operation = "spmv"
    element_type: ElementType = "float32"
    num_dense_cols: int = Field(default=1, ge=1, le=1024)
    axes: Axes = Field(default={}, exclude_if=lambda axes: not axes)
    """Sizes that the operation has beside those of a matrix and `num_dense_cols`."""
    values: ValuesOption = "any"
    deterministic: bool = Field(default=False, exclude_if=_is_false)
    """Whether the program must give equal bits for equal inputs."""
    alpha_beta: bool = Field(default=False, exclude_if=_is_false)
    """Whether y = alpha A x + beta y is graded: the program computes A x, scaled where it stores."""
    gpu: RequestedGpu = Field(default=None, exclude_if=_is_none)
    """The kind of GPU to grade it on, as `GET /v1/fleet` lists them. None: any that is there."""
    program: ProgramText
    """With `//@ tune` lines it is graded at many settings of its knobs."""
    budget: Budget = Budget()
    """Of a program with knobs: every setting that is graded counts as a candidate."""


class EvaluationRequest(EvaluationOptions):
    """`POST /v1/evaluations` as JSON: grade this program on this matrix, or on this task with its axes."""

    matrix: MatrixIndices | None = Field(default=None, exclude_if=_is_none)
    task: Operation | None = Field(default=None, exclude_if=_is_none)
    """In the place of `matrix` and `operation`: an operation that has no matrix."""

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> "EvaluationRequest":
        check_subject(self.matrix, self.task)
        return self


class BreakEven(Message):
    """After how many products an answer has repaid what it cost. None: never, it is not faster."""

    kind: Literal["measured", "estimated"]
    """Of the times behind the counts: counts from estimated times are estimates themselves."""
    conversion_ms: float = Field(ge=0)
    """Host time to bring the matrix into the answer's format; of a library routine, with its own preprocessing."""
    tuning_s: Seconds
    """Wall time of the search that found the answer; a cached answer keeps what was spent on it."""
    products_against_best: int | None
    """Against the best baseline, given what its own preparation costs."""
    products_against_default: int | None
    """Against the default routine."""
    products_against_instant: int | None = Field(default=None, exclude_if=_is_none)
    """Of a search behind an instant kernel: against going on with that one. None: never, or there is no such kernel."""


class TunedAnswer(Message):
    """A kernel that beats the best baseline."""

    kind: Literal["kernel"] = "kernel"
    best: Evaluation
    """The winner; its outcome is Passed."""
    speedup_over_best: float = Field(gt=0)
    speedup_over_default: float = Field(gt=0)
    break_even: BreakEven


class LibraryAnswer(Message):
    """Nothing better than the vendor's routine was found: use that."""

    kind: Literal["library"] = "library"
    routine: str
    """Name of the best baseline."""
    reason: str
    closest: Evaluation | None
    """The best program that passed, if one did."""
    break_even: BreakEven
    """Of the routine: never against the best baseline, which it is; against the default where that is another."""


Answer = Annotated[TunedAnswer | LibraryAnswer, Field(discriminator="kind")]


SourceName = Literal["families", "policy", "edits", "mutate", "text", "endpoint"]
"""`families`: hand-written kernels, tuned. `policy`: samples of the language model. `edits`: what the policy made of
the fastest so far. `mutate`: the fastest so far, changed without a model. `text` and `endpoint`: what a language model
made of it, asked in words, the service's own or one behind an address."""


class SuggestionReport(Message):
    """What came of one suggestion."""

    name: Identifier
    made: int = Field(ge=0)
    """Programs that were graded of those written with it."""
    passed: int = Field(ge=0)
    faster: int = Field(ge=0)
    """Than the program that it was made of."""
    gain: float = Field(ge=0, le=1)
    """The largest share of its parent's time that such a program saved."""


class WritingReport(Message):
    """What a writer's answers cost and what was wrong with them."""

    model: str
    answers: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    """Of all answers, as far as the model's service tells, as the next."""
    completion_tokens: int = Field(ge=0)
    seconds: Seconds
    """Waiting for answers, added up; several are waited for at a time."""
    repairs: int = Field(ge=0)
    """Answers that were asked for because the program before had failed."""
    repaired: int = Field(ge=0)
    """Of these, those that passed."""
    failures: dict[str, int] = Field(default_factory=dict)
    """Questions that were not answered, by reason."""
    suggestions: tuple[SuggestionReport, ...] = ()
    """Those that were made, by name."""


class SourceReport(Message):
    """What one source of candidates brought, and what it cost."""

    source: SourceName
    proposed: int = Field(ge=0)
    passed: int = Field(ge=0)
    seconds: Seconds
    """Of proposing and of grading; sources work at the same time."""
    gain: float = Field(ge=0, le=1)
    """Share of the best time, the library's at the start, by which this source lowered it."""
    writing: WritingReport | None = Field(default=None, exclude_if=_is_none)
    """Of a source that is a language model shown other programs. None: of others."""


class InstantKernel(Message):
    """A kernel that was chosen without a measurement and handed out before the search: `search="instant"`."""

    workload: Workload
    candidate: Candidate
    checked: Checked
    """On one input; the full protocol follows, and withdraws the kernel if it fails."""
    chosen_by: str
    """`cost model of NVIDIA H200`, or `analytic estimate` where no model knows the device or the operation."""
    expected: EstimatedTiming
    """By the analytic estimate: nothing was timed."""
    device: DeviceDescription
    """That it was compiled for and checked on."""
    stages_ms: dict[str, float]
    """Wall time from the parsed pattern to here, by stage, of all choices that were tried; stages on the evaluator
    overlap."""
    tuning_s: Seconds
    """Wall time from the acceptance of the request, its matrix parsed, to here: queues and messages included."""
    state: Literal["checked", "confirmed", "withdrawn"] = "checked"
    """`confirmed`: it passed the full protocol. `withdrawn`: it did not, and must not be used."""
    withdrawn_because: str | None = None
    passed: Passed | None = None
    """What the full protocol found, once it is known; its time among it."""
    break_even: BreakEven | None = None
    """Of this kernel, once it is measured beside the baselines: counts from `tuning_s` alone."""


class SearchReport(Message):
    """What was tried for a request."""

    strategy: SearchStrategy
    num_candidates: int = Field(ge=0)
    outcomes: dict[str, int]
    """Outcome name -> number of candidates."""
    policy_versions: tuple[PolicyVersion, ...]
    """Versions that the sampled candidates came from, ascending."""
    seconds: Seconds
    first_graded_s: Seconds
    """From acceptance of the request to the first graded candidate."""
    sources: tuple[SourceReport, ...] = ()
    """In the order in which they were first asked. Empty: the answer is of a release that did not tell."""


KeyId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Of a key that signs reports: the first 16 digits of the SHA-256 of its 32 public bytes."""


class ReportSignature(Message):
    """Of a report without this field, in the words that `sparsesmith.artifacts.signing` makes of it."""

    algorithm: Literal["ed25519"] = "ed25519"
    key_id: KeyId
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]
    """64 bytes in Base64."""


class SigningKey(Message):
    """`GET /v1/signing-key`: what a server's reports are verified with."""

    algorithm: Literal["ed25519"] = "ed25519"
    key_id: KeyId
    public_key: str
    """PEM, as openssl reads it."""


class KernelReport(Message):
    """The whole answer to a request: what to use and the numbers behind it."""

    workload: Workload
    num_rows: int | None = Field(default=None, ge=1)
    """Of the matrix, as the next two; None: a task without one."""
    num_cols: int | None = Field(default=None, ge=1)
    nnz: int | None = Field(default=None, ge=1)
    answer: Answer
    baselines: Baselines
    device: DeviceDescription
    search: SearchReport
    instant: InstantKernel | None = Field(default=None, exclude_if=_is_none)
    """What was handed out before the search. None: nothing was asked for, or nothing found."""
    signature: ReportSignature | None = Field(default=None, exclude_if=_is_none)
    """Of a report that is handed out as a file. None: in a job's states, and of a server that signs nothing."""
    transposed: "KernelReport | None" = Field(default=None, exclude_if=_is_none)
    """Of A^T, where both were asked for: a report of its own. None: of others."""
    extra_bytes: Bytes | None = Field(default=None, exclude_if=_is_none)
    """Of a report on A^T: device memory that its format takes beside what A's kernel has in its own. None: of others,
    and where a routine of the library is the answer of either."""


class KnobReport(Message):
    """What was tried of the knobs of a program."""

    num_settings: int = Field(ge=1)
    """Combinations of their values."""
    num_listed: int = Field(ge=1)
    """Of these, those that the search chose from: of very many, some drawn at random."""
    num_graded: int = Field(ge=0)
    outcomes: dict[str, int]
    """Outcome name -> number of settings."""
    seconds: Seconds


class EvaluationAnswer(Message):
    """The whole answer to `POST /v1/evaluations`."""

    workload: Workload
    evaluation: Evaluation
    """Of a program with knobs: that of the best setting, which its candidate names."""
    baselines: Baselines
    device: DeviceDescription
    knobs: KnobReport | None = None
    """None: the program has no knobs."""


class Problem(Message):
    """An RFC 9457 problem document. `field`, `value` and `limit` name what was wrong where that can be said."""

    type: str
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    field: str | None = None
    value: str | None = None
    limit: str | None = None


class Queued(Message):
    state: Literal["queued"] = "queued"
    position: int = Field(ge=0)
    """Requests ahead of this one."""


class Running(Message):
    state: Literal["running"] = "running"
    num_graded: int = Field(ge=0)
    budget_candidates: int = Field(ge=1)
    best_program: str | None
    best_us: Microseconds | None
    """Median of the best so far, measured or estimated as the evaluator's device says."""
    best_speedup: float | None
    """Over the best baseline."""
    instant: InstantKernel | None = Field(default=None, exclude_if=_is_none)
    """What was handed out before the search, of `search="instant"`."""
    so_far: KernelReport | None = Field(default=None, exclude_if=_is_none)
    """Of `search="instant"`: the answer if the search ended now, once something was measured."""


class Finished(Message):
    state: Literal["finished"] = "finished"
    report: KernelReport


class Graded(Message):
    state: Literal["graded"] = "graded"
    answer: EvaluationAnswer


class Failed(Message):
    state: Literal["failed"] = "failed"
    problem: Problem


class Cancelled(Message):
    state: Literal["cancelled"] = "cancelled"


JobState = Annotated[Queued | Running | Finished | Graded | Failed | Cancelled, Field(discriminator="state")]


class JobStatus(Message):
    """`GET /v1/kernels/{id}` and `GET /v1/evaluations/{id}`; also the data of each server-sent event."""

    job_id: Identifier
    accepted_at: str
    """UTC, ISO 8601."""
    status: JobState


class JobSummary(Message):
    """A job in a list."""

    job_id: Identifier
    accepted_at: str
    """UTC, ISO 8601."""
    kind: Literal["kernel", "evaluation"]
    """What was asked for: a tuned kernel, or the grading of a program."""
    workload: Workload
    state: Literal["queued", "running", "finished", "graded", "failed", "cancelled"]
    best_speedup: float | None = None
    """Over the best baseline, of what was found so far; None: nothing that passed, or that is faster."""


class JobPage(Message):
    """`GET /v1/kernels`: jobs of both kinds, the newest first."""

    jobs: tuple[JobSummary, ...]
    next_before: Identifier | None
    """`before` of the next page; None: there are no older ones."""


class TaskOperand(Message):
    """An array that kernels of a task take."""

    name: Identifier
    role: Literal["input", "inout", "output"]
    """`inout`: changed in place."""
    axes: tuple[Identifier, ...]
    """Its shape, row-major, by names of axes; empty: one number."""
    dtype: Literal["T", "int32"]
    """`T`: the request's element type."""
    meaning: str = ""


class TaskCard(Message):
    """`GET /v1/tasks/{name}`: an operation without a matrix."""

    name: Operation
    version: int
    formula: str
    text: str
    """In words; empty where its author says no more than the formula."""
    axes: tuple[Identifier, ...]
    """What a request gives a size to."""
    operands: tuple[TaskOperand, ...]
    element_types: tuple[ElementType, ...]
    programs: tuple[Identifier, ...]
    """First programs; the naive one, which is the baseline, first."""
    sizes: tuple[Axes, ...]
    """Axes at which it is measured."""


class TaskPosting(Message):
    """`POST /v1/tasks`: a task of flashinfer-bench, where the server takes such."""

    definition: str = Field(max_length=2**20)
    """Text of the Definition, JSON, as flashinfer-bench has it."""
    workloads: str = Field(default="", max_length=2**20)
    """Text of its Workloads, JSON lines: sizes at which it is measured, and its scalars."""
    program: ProgramText
    """Its naive program, which others are compared with."""


class TaskPage(Message):
    """`GET /v1/tasks`."""

    tasks: tuple[TaskCard, ...]
    """By name."""


class PolicyStatus(Message):
    """`GET /v1/policy`."""

    model: str
    version: PolicyVersion
    num_parameters: int = Field(ge=0)
    encoder: str
    announcement: PolicyAnnouncement | None
    """The announcement behind the version; None for the policy as shipped."""
    under_probe: PolicyVersion | None = None
    """The version whose canary is under way; no user is given its samples."""
    verdicts: tuple[Verdict, ...] = ()
    """What was decided of published versions and why, ascending versions, the newest 64."""
    taken: VersionTaken | None = None
    """What taking the version in service up cost; None where it serves since the engine was started."""


class RollbackRequest(Message):
    """`POST /operator/policy/rollback`."""

    version: PolicyVersion | None = None
    """An accepted version, or 0, the policy as shipped. None: the accepted one before the version in service."""


class FromPolicy(Message):
    """The policy wrote it: `Sampled` without its tokens and its prompt."""

    kind: Literal["sampled"] = "sampled"
    group: Identifier
    first_version: PolicyVersion
    last_version: PolicyVersion
    temperature: float | None = Field(default=None, gt=0, exclude_if=_is_none)
    """At which its tokens were sampled. None: an earlier release tells it."""
    min_p: float = Field(default=0, ge=0, lt=1, exclude_if=lambda share: share == 0)
    """As `Sampled.min_p`."""
    parent: Identifier | None = Field(default=None, exclude_if=_is_none)
    """Candidate that it was shown with its report. None: it was written without one."""
    generation: int | None = Field(default=None, ge=1, exclude_if=_is_none)
    """Changes since the program that the search began with."""
    report: str | None = Field(default=None, exclude_if=_is_none)
    """What was told of the parent."""


class TriedCandidate(Message):
    """A candidate of a job, and what became of it."""

    number: int = Field(ge=0)
    """In the order of grading, from 0."""
    candidate_id: Identifier
    program: str
    """As it was graded, numbers filled in: the text of a model may hold more than the program."""
    written: str | None = None
    """As it was proposed, where that left numbers open."""
    settings: dict[str, int | str] = Field(default_factory=dict)
    """Of its knobs; one that is left out has its first value."""
    origin: Annotated[
        FromPolicy | FromFamily | Mutated | Written | UserWritten | ProbeWritten, Field(discriminator="kind")
    ]
    outcome: Outcome
    graded_s: Seconds
    """From the start of the job's run to the report that told of it."""
    share_of_floor: float | None = Field(default=None, ge=0)
    """Of its time, what copying alone takes: the values and the dense operands once each, at the device's copy
    bandwidth. None: it did not pass, or an earlier release graded it."""

    @property
    def message(self) -> str | None:
        """Why it did not pass; None where it did."""
        match self.outcome:
            case Passed():
                return None
            case CompileFailed(log=log):
                return log
            case failed:
                return failed.message


class CandidatePage(Message):
    """`GET /v1/kernels/{id}/candidates`: some of what was tried for a job, so far."""

    job_id: Identifier
    num_candidates: int = Field(ge=0)
    """Graded so far."""
    candidates: tuple[TriedCandidate, ...]
    next_offset: int | None
    """Where the next page starts; None: nothing more has been graded."""


class Listing(Message):
    """`GET /v1/kernels/{id}/listing`: a program and what an evaluator's compiler made of it."""

    program: str
    """The lines that the PTX names, from 1."""
    ptx: str
    """As it was checked and assembled; `.loc 1 N 0` stands before what line N of the program became."""
    architecture: Architecture


class RowLengths(Message):
    """Rows of one range of lengths."""

    shortest: int = Field(ge=0)
    longest: int = Field(ge=0)
    """Inclusive."""
    num_rows: int = Field(ge=0)


class BlockFill(Message):
    """How full the aligned square blocks are that hold a nonzero."""

    extent: int = Field(ge=2)
    """Rows and columns of a block."""
    share: float = Field(ge=0, le=1)
    """Of their places, those that hold a nonzero."""


class MatrixCard(Message):
    """`GET /v1/kernels/{id}/matrix`: what the pattern of a job's matrix looks like, in numbers."""

    pattern: Digest
    num_rows: int = Field(ge=1)
    num_cols: int = Field(ge=1)
    nnz: int = Field(ge=1)
    row_lengths: tuple[RowLengths, ...]
    """Every range up to the longest row: 0, 1, 2, 3 to 4, 5 to 8, ..."""
    shortest_row: int = Field(ge=0)
    mean_row: float = Field(ge=0)
    longest_row: int = Field(ge=0)
    lower_bandwidth: int = Field(ge=0)
    """Largest row - column of a nonzero, at least 0."""
    upper_bandwidth: int = Field(ge=0)
    """Largest column - row, at least 0."""
    symmetry: float | None = Field(ge=0, le=1)
    """Share of nonzeros (i, j) with (j, i) stored, on a sample of at most 65,536. None: the matrix is not square."""
    blocks: tuple[BlockFill, ...]
    """On a sample; exact for up to 262,144 nonzeros."""


class Density(Message):
    """`GET /v1/kernels/{id}/density`: nonzeros of a part of the matrix, counted in a grid of boxes."""

    first_row: int = Field(ge=0)
    end_row: int = Field(ge=1)
    """One past the last."""
    first_col: int = Field(ge=0)
    end_col: int = Field(ge=1)
    grid_rows: int = Field(ge=1)
    grid_cols: int = Field(ge=1)
    counts: tuple[int, ...]
    """Nonzeros of each box, shape [grid_rows, grid_cols], row-major. Row i lies in box
    (i - first_row) * grid_rows // (end_row - first_row), columns likewise."""


class EvaluatorView(Message):
    """An evaluator as it told of itself within the last minute."""

    worker: str
    kind: DeviceKind
    device: str
    architecture: str
    jobs: int = Field(ge=0)
    """Answered since it started."""
    job_seconds: Seconds
    """Spent on them."""
    outcomes: dict[str, int]
    """Candidates graded since it started, by outcome."""
    stage_seconds: dict[str, Seconds] = Field(default_factory=dict, exclude_if=lambda stages: not stages)
    """Of `job_seconds`, by stage of a job."""


class GpuView(Message):
    """A kind of GPU that a request may name."""

    name: Gpu
    kind: DeviceKind
    architecture: str
    evaluators: int = Field(ge=1)
    """With a fresh heartbeat."""
    evaluations_waiting: int = Field(ge=0)
    """Batches that wait for this kind alone."""


class TrainerView(Message):
    """The trainer, likewise."""

    worker: str
    updates: int = Field(ge=0)
    version: PolicyVersion
    """Newest that it made."""
    figures: dict[str, float]
    """Of its last update: mean_reward, pass_share, ..."""


class Fleet(Message):
    """`GET /v1/fleet`: who works, and what waits."""

    jobs_waiting: int = Field(ge=0)
    jobs_running: int = Field(ge=0)
    evaluations_waiting: int = Field(ge=0)
    """Batches of candidates in the evaluators' queue."""
    stored_matrix_bytes: Bytes
    history_days: int = Field(ge=1)
    """Days that a job which has ended is kept."""
    evaluators: tuple[EvaluatorView, ...]
    gpus: tuple[GpuView, ...] = ()
    """Kinds of GPU that evaluators have now, by name."""
    trainers: tuple[TrainerView, ...]
    policy: PolicyStatus | None
    """None: the service runs without one."""


class Readiness(Message):
    """`GET /readyz`: requests are taken and answered."""

    status: Literal["ready"] = "ready"
    degraded: str | None = None
    """What does not work meanwhile."""


class Permalink(Message):
    """`GET /v1/kernels/{id}/permalink`: a job's address that opens without a key, for reading alone."""

    path: str
    """Of the page."""
    secret: str | None
    """For `X-Job-Secret`, or `?secret=` of a request about the job. None: the server asks for no keys."""
