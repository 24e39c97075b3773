"""The nouns that more than one hop shares: workload, candidate, outcome, timing, baselines."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparsesmith_proto.message import (
    Architecture,
    Axes,
    Bytes,
    Digest,
    ElementType,
    EncoderName,
    Identifier,
    Message,
    Microseconds,
    Operation,
    PolicyVersion,
    ProgramText,
    Seconds,
)


def _is_false(value: object) -> bool:
    return value is False


def _is_zero(value: object) -> bool:
    return value == 0


def _is_none(value: object) -> bool:
    return value is None


class Workload(Message):
    """What a kernel is tuned for."""

    pattern: Digest | None = None
    """Digest of the sparsity pattern; the pattern itself lies in the pattern store. None: a task without a matrix."""
    operation: Operation
    element_type: ElementType
    num_dense_cols: int = Field(default=1, ge=1, le=1024)
    """Columns of the dense operand: 1 for spmv."""
    values: Digest | None = None
    """Digest of the values where the request fixes them: kernels are right for these only. None: for any values."""
    axes: Axes = Field(default={}, exclude_if=lambda axes: not axes)
    """Sizes that the operation has beside those of a matrix and `num_dense_cols`."""
    deterministic: bool = Field(default=False, exclude_if=_is_false)
    """Equal inputs give equal bits, in every run and at every place in memory."""
    alpha_beta: bool = Field(default=False, exclude_if=_is_false)
    """What is graded and timed is the result times alpha, added to the output times beta."""

    def __hash__(self) -> int:
        return hash((self.pattern, self.operation, self.element_type, self.num_dense_cols, self.values))

    @model_validator(mode="after")
    def _values_are_of_a_matrix(self) -> "Workload":
        if self.values is not None and self.pattern is None:
            raise ValueError("values: a task without a matrix has none")
        return self


class Parent(Message):
    """A program that a sample refines, and what was measured of it."""

    program: ProgramText
    report: str


class Prompt(Message):
    """All that is needed to rebuild a policy's prompt from the pattern, so that embeddings never travel."""

    encoder: EncoderName
    sample_seed: int = Field(ge=0, lt=2**63)
    """Seed of the choice of nonzeros that the matrix tokens show."""
    architecture: Architecture
    parent: Parent | None = None
    num_sms: int | None = Field(default=None, ge=1, le=65536, exclude_if=lambda known: known is None)
    """Multiprocessors of the device that is written for; None: not told."""
    copy_bandwidth_gbs: float | None = Field(default=None, gt=0, le=1e9, exclude_if=lambda known: known is None)
    """Its device-to-device copy, read plus written, in 1e9 bytes a second; None: not told."""


class Sampled(Message):
    """The candidate was written by the policy."""

    kind: Literal["sampled"] = "sampled"
    prompt: Prompt
    group: Identifier
    """Samples of one prompt share a group: their rewards are each other's baseline."""
    group_size: int | None = Field(default=None, ge=1)
    """Samples that are drawn of this prompt, if the search goes on for so long. None: not known, as in records of
    earlier releases."""
    token_ids: tuple[int, ...] = Field(min_length=1)
    logprobs: tuple[float, ...] = Field(min_length=1)
    """Natural log-probability of each token under the policy that sampled it, after temperature and `min_p`."""
    temperature: float = Field(gt=0)
    min_p: float = Field(default=0, ge=0, lt=1, exclude_if=_is_zero)
    """No token was sampled that is less likely, at the temperature, than this share of the likeliest. 0: all may be."""
    first_version: PolicyVersion
    """Policy version when the first token was sampled."""
    last_version: PolicyVersion
    """Policy version when the last token was sampled."""
    asked: Digest | None = Field(default=None, exclude_if=_is_none)
    """SHA-256 of the prompt's token ids where it was a text, as 32-bit little-endian numbers: whoever writes the prompt
    again compares. None: there was an encoder."""
    parent: Identifier | None = Field(default=None, exclude_if=_is_none)
    """Candidate of the same search whose program and report are the prompt's parent. None: there is none."""
    generation: int = Field(default=0, ge=0, exclude_if=_is_zero)
    """Changes since the program that the search began with. 0: it was written without a parent."""

    @model_validator(mode="after")
    def _parent_is_in_the_prompt(self) -> "Sampled":
        if self.parent is not None and (self.prompt.parent is None or not self.generation):
            raise ValueError(f"parent: {self.parent} is not shown in the prompt, or generation is 0")
        return self

    @model_validator(mode="after")
    def _one_logprob_a_token(self) -> "Sampled":
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"logprobs: {len(self.logprobs)} given for {len(self.token_ids)} token_ids")
        if self.last_version < self.first_version:
            raise ValueError(f"last_version: {self.last_version} is before first_version {self.first_version}")
        return self


class FromFamily(Message):
    """The candidate is a kernel family with its parameters filled in."""

    kind: Literal["family"] = "family"
    family: str
    parameters: dict[str, int | str]


class UserWritten(Message):
    """The candidate came from a user."""

    kind: Literal["user"] = "user"


class ProbeWritten(Message):
    """The candidate was drawn to vet a policy version before it serves: nobody learns from it, no user is given it."""

    kind: Literal["probe"] = "probe"
    version: PolicyVersion


class Mutated(Message):
    """The candidate is another one of the same search, changed without a model (`sparsesmith.mutation`)."""

    kind: Literal["mutated"] = "mutated"
    parent: Identifier
    """Candidate that was changed."""
    deed: str
    """What was done: `hints: x ldcg`; several changes with ` + ` between."""
    seed: str
    """Of the choice among all changes: the parent's text and the seed give the program again. `likely`: the change of
    this name was not chosen by chance."""
    generation: int = Field(ge=1)
    """Changes since the program that the search began with."""
    report: str
    """What was measured of the parent, as whoever changes it is told."""


class Written(Message):
    """The candidate was written by a text model that was told of another one of the same search, or of none."""

    kind: Literal["written"] = "written"
    writer: Literal["text", "endpoint"]
    """The service's own language model, or one behind an address."""
    model: str
    """As the writer's service calls it."""
    parent: Identifier | None
    """Candidate that was improved on or repaired. None: it was written from the operation's words alone."""
    generation: int = Field(ge=1)
    """Answers since the program that the chain began with."""
    report: str
    """What was told of the parent: its outcome, profile and suggestions. Empty: there was none."""
    suggestions: tuple[Identifier, ...] = ()
    """Names of those that were made."""
    prompt_tokens: int | None = Field(default=None, ge=0)
    """As the model's service counts them, as the next. None: it does not tell."""
    completion_tokens: int | None = Field(default=None, ge=0)
    seconds: Seconds
    """That the answer took, attempts before it included."""


Origin = Annotated[Sampled | FromFamily | Mutated | Written | UserWritten | ProbeWritten, Field(discriminator="kind")]


class Candidate(Message):
    """A kernel program under evaluation. `program` may be raw model text: the evaluator extracts the program.

    It may leave numbers open (`//@ let`, `//@ tune`); the evaluator fills them in, and what comes back in a report is
    the program of plain numbers that was graded.
    """

    candidate_id: Identifier
    program: str
    origin: Origin
    settings: dict[str, int | str] = Field(default_factory=dict)
    """Of the program's knobs, by name; one that is left out has its first value."""
    written: str | None = None
    """What the program was before its numbers were filled in. None: it left none open."""


class MeasuredTiming(Message):
    """Time on a GPU, per launch sequence, from CUDA events around replayed CUDA graphs."""

    kind: Literal["measured"] = "measured"
    median_us: Microseconds
    """Warm: data as an iterative solver leaves it in the caches. Median of batches; the mean of `placements_us` where
    there are any."""
    low_us: Microseconds
    """Lower end of its 95 % confidence interval."""
    high_us: Microseconds
    cold_us: Microseconds
    """Median with the L2 flushed before each run."""
    num_batches: int = Field(ge=1)
    stable: bool
    """Noise verdict: the interval closed under its target and nothing disturbed the GPU. In words: noise_verdict."""
    sm_clock_mhz: int = Field(ge=0)
    """SM clock right after timing; 0 where the driver does not tell."""
    num_attempts: int = Field(default=1, ge=1)
    """How often it was measured: again where something disturbed it."""
    disturbances: tuple[str, ...] = ()
    """What disturbed the last attempt: throttling by its name, a clock that moved."""
    placements_us: tuple[Microseconds, ...] = ()
    """Medians with the buffers at other addresses each time, on which the time of a short kernel depends. Empty: it was
    timed at one placement."""
    is_final: bool = False
    """From the finals: timed at length, in turns with the best baseline. Other times are good to a few per cent."""

    @property
    def relative_interval(self) -> float:
        """Width of the confidence interval as a share of the median."""
        return (self.high_us - self.low_us) / self.median_us if self.median_us > 0 else 0.0

    def noise_verdict(self) -> str:
        """Whether the time can be trusted, and why, for people."""
        parts = [f"95 % interval {100 * self.relative_interval:.2g} % wide, {self.num_batches} batches"]
        if self.sm_clock_mhz:
            parts.append(f"SM at {self.sm_clock_mhz} MHz")
        if self.num_attempts > 1:
            parts.append(f"measured {self.num_attempts} times")
        if self.placements_us:
            low_us, high_us = min(self.placements_us), max(self.placements_us)
            parts.append(f"{low_us:.2f} to {high_us:.2f} us at {len(self.placements_us)} placements of the buffers")
        parts.append(f"disturbed: {', '.join(self.disturbances)}" if self.disturbances else "undisturbed")
        return f"{'steady' if self.stable else 'UNSTEADY'} ({'; '.join(parts)})"


class EstimatedTiming(Message):
    """No GPU was there: a traffic model's estimate. Never compared with a measured time."""

    kind: Literal["estimated"] = "estimated"
    median_us: Microseconds
    traffic_model: str


Timing = Annotated[MeasuredTiming | EstimatedTiming, Field(discriminator="kind")]


class AdverseTiming(Message):
    """Time on inputs that are hard on usual programs, of a task whose times depend on what its inputs hold."""

    draw: Identifier
    """How they were drawn; of several such kinds the one that took longest."""
    timing: Timing
    """Taken briefly, whatever the time on the usual inputs was."""


class Resources(Message):
    """What the compiler says of the heaviest kernel of a program."""

    registers: int = Field(ge=0)
    spill_bytes: Bytes
    shared_bytes: Bytes
    compile_ms: float = Field(ge=0)


class Repeats(Message):
    """Runs on equal inputs that gave equal bits."""

    runs: int = Field(ge=2)
    """Each on a GPU with the buffers at other addresses, without one with blocks and warps in another order."""
    contexts: int = Field(ge=1)
    """Processes, each with the device to itself, that they were made in."""


SanitizerTool = Literal["memcheck", "racecheck", "initcheck"]


class ToolCheck(Message):
    """What a tool of NVIDIA's compute-sanitizer says of a program that it found no error in."""

    tool: SanitizerTool
    state: Literal["clean", "not_checked"]
    """`not_checked`: it did not come to an end; that says nothing for the program."""
    reason: str = Field(default="", exclude_if=lambda reason: not reason)
    """Why not."""

    def describe(self) -> str:
        """`clean`, or that it was not checked and why."""
        return "clean" if self.state == "clean" else f"NOT CHECKED ({self.reason})"


class Passed(Message):
    """Compiled, correct on every input drawn, and timed."""

    outcome: Literal["passed"] = "passed"
    timing: Timing
    resources: Resources
    storage_format: str
    format_bytes: Bytes
    """Device memory that the format takes, values included."""
    conversion_ms: float = Field(ge=0)
    """Host time to build the format from CSR."""
    worst_error: float = Field(ge=0)
    """Largest |y - y_ref| / (|A| |x|) over all inputs and rows."""
    num_inputs: int = Field(ge=1)
    """Inputs that were drawn and checked."""
    repeats: Repeats | None = Field(default=None, exclude_if=_is_none)
    """Of a workload that is `deterministic`. None: of others."""
    inspected: float | None = Field(default=None, ge=0, le=1, exclude_if=_is_none)
    """Share of the blocks of its launches that ran on the interpreter, beside the GPU, which found nothing undefined in
    them: no access out of bounds, no read of what nothing has written, no race. None: it was not asked, or could not
    tell."""
    sanitized: tuple[ToolCheck, ...] = Field(default=(), exclude_if=lambda checks: not checks)
    """Of what led its search, where the evaluator has the tools look at such. Empty: of others."""
    adverse: AdverseTiming | None = Field(default=None, exclude_if=_is_none)
    """Nothing is ranked by it. None: of operations whose times do not depend on what inputs hold."""

    @property
    def standing(self) -> tuple[bool, float]:
        """Sorts what passed, the fastest first: only times of the finals decide which is the fastest, so that none wins
        by the luck of a brief time."""
        is_brief = isinstance(self.timing, MeasuredTiming) and not self.timing.is_final
        return is_brief, self.timing.median_us


class Checked(Message):
    """Compiled, and correct on one input that was drawn; not timed."""

    outcome: Literal["checked"] = "checked"
    resources: Resources
    storage_format: str
    format_bytes: Bytes
    """Device memory that the format takes, values included."""
    conversion_ms: float = Field(ge=0)
    """Time to build the format from CSR: of one thread of the host, or of the device, as `built_on` says."""
    built_on: Literal["host", "device"] = Field(default="host", exclude_if=lambda where: where == "host")
    worst_error: float = Field(ge=0)
    """Largest |y - y_ref| / (|A| |x|)."""


class Rejected(Message):
    """Not a legal program for this workload: refused before the compiler saw it."""

    outcome: Literal["rejected"] = "rejected"
    message: str


class CompileFailed(Message):
    outcome: Literal["compile_failed"] = "compile_failed"
    log: str


class Mismatch(Message):
    """It ran, and the result is wrong, incomplete or not repeatable, or it wrote where it must not."""

    outcome: Literal["mismatch"] = "mismatch"
    message: str


class Crashed(Message):
    """It ended its process or was stopped by the memory checker."""

    outcome: Literal["crashed"] = "crashed"
    message: str


class TimedOut(Message):
    outcome: Literal["timed_out"] = "timed_out"
    stage: Literal["compile", "run", "turn"]
    """`turn`: it was not reached: its job's time was over, or others' turn had come. No fault of the candidate."""
    limit_s: Seconds
    message: str


Outcome = Annotated[Passed | Rejected | CompileFailed | Mismatch | Crashed | TimedOut, Field(discriminator="outcome")]


class Evaluation(Message):
    """One candidate and what became of it."""

    candidate: Candidate
    outcome: Outcome


class BaselineTiming(Message):
    """One routine of the vendor's library (or, without a GPU, a plain stand-in kernel) under the same harness."""

    routine: str
    """`cusparse_csr_default`, `cusparse_coo_alg1`, ...; without a GPU `plain_csr_scalar`, ..."""
    timing: Timing
    preparation_ms: float = Field(ge=0)
    """Conversion to its format plus the library's own preprocessing."""
    adverse: AdverseTiming | None = Field(default=None, exclude_if=_is_none)
    """As `Passed.adverse`."""
    needs_copy: bool = Field(default=False, exclude_if=lambda needs: not needs)
    """Whether it reads a copy of A^T, where the workload is A^T from A as it is stored."""


class Baselines(Message):
    """Every library routine that applies to a workload."""

    default: str
    """Name of the routine a user gets without choosing: CSR, default algorithm."""
    routines: tuple[BaselineTiming, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _default_was_timed(self) -> "Baselines":
        if all(routine.routine != self.default for routine in self.routines):
            raise ValueError(f"default: {self.default!r} is not among the routines")
        return self

    def best_routine(self) -> BaselineTiming:
        """The fastest of those that a kernel is held against: they read the matrix as it is stored. Of all where each
        needs a copy of A^T."""
        return self._fastest(needs_copy=False) or min(self.routines, key=_median_us)

    def best_on_a_copy(self) -> BaselineTiming | None:
        """The fastest of those that need a copy of A^T beside A."""
        return self._fastest(needs_copy=True)

    def _fastest(self, *, needs_copy: bool) -> BaselineTiming | None:
        found = (routine for routine in self.routines if routine.needs_copy == needs_copy)
        return min(found, key=_median_us, default=None)

    def default_routine(self) -> BaselineTiming:
        return next(routine for routine in self.routines if routine.routine == self.default)


def _median_us(routine: BaselineTiming) -> float:
    return routine.timing.median_us


DeviceKind = Literal["cuda", "interpreter"]


class DeviceDescription(Message):
    """Where the numbers come from."""

    kind: DeviceKind
    name: str
    """`NVIDIA H200`, or `PTX interpreter`."""
    architecture: Architecture
    num_sms: int = Field(ge=1)
    copy_bandwidth_gbs: float = Field(gt=0)
    """Measured device-to-device copy, read plus written bytes, in 1e9 bytes a second; assumed by the traffic model
    where no GPU is there."""
    versions: dict[str, str]
    """Driver, cuSPARSE, package; of the toolchain `nvrtc`, `ptxas` and the `options` that change the code."""

    @property
    def gpu(self) -> str:
        """The kind of GPU, as requests name it: `NVIDIA H200`. Times of two kinds are not comparable. The interpreter's
        says for which generation it stands: `PTX interpreter sm_90`."""
        return self.name if self.kind == "cuda" else f"{self.name} {self.architecture}"

    @property
    def toolchain(self) -> str:
        """What compiled the programs, as one line: `nvrtc 13.0, ptxas 13.0, -std=c++17, sm_90`.

        Earlier releases have not written it down: `an unknown toolchain, sm_90`.
        """
        tools = [f"{name} {self.versions[name]}" for name in ("nvrtc", "ptxas") if name in self.versions]
        options = [self.versions["options"]] if "options" in self.versions else []
        return ", ".join([*(tools or ["an unknown toolchain"]), *options, self.architecture])
