"""Settings of the evaluator, read from the environment in `__main__` and handed down."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from sparsesmith_proto.message import Architecture


class EvaluatorSettings(BaseSettings):
    """Every field is read from SPARSESMITH_EVALUATOR_<NAME>; `redis_url` from SPARSESMITH_REDIS_URL or REDIS_URL."""

    model_config = SettingsConfigDict(
        env_prefix="SPARSESMITH_EVALUATOR_", populate_by_name=True, use_attribute_docstrings=True
    )

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", validation_alias=AliasChoices("SPARSESMITH_REDIS_URL", "REDIS_URL")
    )
    """Where jobs come from: redis://, rediss:// or unix://."""

    traces_endpoint: str = Field(default="", max_length=2000)
    """Where traces of jobs go, OTLP by HTTP: http://HOST:4318/v1/traces (extra `tracing`). Empty: nowhere."""

    device: Literal["auto", "cuda", "interpreter"] = "auto"
    """auto: a GPU where there is one, else the interpreter."""
    cuda_device: int = Field(default=0, ge=0, le=63)
    """Which GPU; one worker has one."""
    gpu_claims_dir: Path | None = None
    """Folder that the evaluators of a machine share: each takes a GPU that none of them has, and `cuda_device` does not
    count."""
    sharers: int = Field(default=1, ge=1, le=4)
    """Evaluators that may take the same GPU of `gpu_claims_dir`, in turns: while one compiles, parses or asks Redis,
    another measures, and never two at once. Each has an equal part of the GPU's memory and of the host's cores. The
    same for all evaluators of a machine. 1: a GPU each; no GPU has shown yet that more pay."""
    architecture: Architecture = "sm_90"
    """GPU generation that the interpreter compiles for; a GPU says its own."""
    spare_process: bool | None = None
    """Others with the device wait for when a kernel ends the process at work: `least_spares`, up to `most_spares` where
    kernels end many. Each takes a context of the device's memory, and where it is warm the inputs of a workload of up
    to five million elements. None: on a GPU."""

    least_spares: int | None = Field(default=None, ge=1, le=32)
    """Processes that wait as a rule. None: one for each 32 GiB of the GPU's memory, from one to four: with four, a
    batch of which every seventh program ends its process takes a third less time (`crash-costs.json`)."""

    most_spares: int | None = Field(default=None, ge=1, le=32)
    """Processes that wait or start at once where kernels end one after another. None: one for each 8 GiB of the GPU's
    memory, from four to twelve."""

    confinement: Literal["auto", "on", "off"] = "auto"
    """Whether the kernel holds compilers and the device's processes (Landlock, seccomp). auto: those that work under it
    on a trial at the start, with a warning for those that do not. on: nothing starts without. off: none."""

    inspects: bool = True
    """Whether, beside a GPU, the interpreter looks at users' programs and at the fastest of each batch that no family
    wrote, in a process of its own: what CUDA leaves undefined has not passed."""

    compile_workers: int = Field(default=0, ge=0, le=256)
    """Compiler processes. 0: one a core, less one for the device."""
    compile_limit_s: float = Field(default=20, gt=0, le=600)
    """Longest compilation of a program."""
    start_limit_s: float | None = Field(default=None, gt=0, le=3600)
    """Longest start of the device's process. None: 180 on a GPU, 900 on the interpreter, which compiles itself on a
    new computer."""
    open_limit_s: float = Field(default=120, gt=0, le=3600)
    """Longest upload of a workload."""
    baselines_limit_s: float = Field(default=300, gt=0, le=3600)
    """Longest timing of a workload's baselines."""
    build_limit_s: float = Field(
        default=60,
        gt=0,
        le=3600,
        validation_alias=AliasChoices("SPARSESMITH_EVALUATOR_BUILD_LIMIT_S", "SPARSESMITH_EVALUATOR_STORE_LIMIT_S"),
    )
    """Longest building of a format. Read from STORE_LIMIT_S, too, its name in earlier releases."""
    draw_limit_s: float = Field(default=180, gt=0, le=3600)
    """Longest drawing of a batch's inputs and reference results."""
    run_limit_s: float | None = Field(default=None, gt=0, le=3600)
    """Longest check and longest timing of a candidate. None: 15 on a GPU, 120 on the interpreter."""
    tells_of_all: bool = False
    """Whether programs of families and mutators that pass go on the trainer's stream, too, for a trainer that imitates
    (SPARSESMITH_TRAINER_IMITATION_SHARE). Off: no GPU has shown yet that it pays."""
    builds_formats: Literal["never", "at_once", "always"] = "at_once"
    """For which programs a GPU builds the formats of matrices from 100,000 nonzeros itself (`formats/on_device`).
    at_once: for kernels that are wanted at once alone (`search="instant"`), as a search builds its formats ahead on
    cores that are idle; always was not timed in its place yet. The bits are the host's."""
    records_written: bool = False
    """Whether programs that other models wrote (`refine` with `text` or `endpoint`) and that pass go on the stream of
    reward records, too. Online training leaves them out in any case: it has no log-probabilities of them."""
    reference_limit_s: float = Field(default=60, gt=0, le=3600)
    """Longest answer of an imported task's reference to one question."""
    reference_memory_mib: int = Field(default=8192, ge=1024, le=1 << 20)
    """Address space of the process that runs it; torch takes about two thousand of it."""
    posted_tasks: bool = False
    """Whether references of tasks that came over HTTP are run, too."""
    sanitizes_winners: bool = False
    """Whether compute-sanitizer (memcheck, racecheck, initcheck) looks at what would win a search on a GPU
    (docs/security.md). Off: no GPU has shown yet what it costs."""
    sanitizer_limit_s: float = Field(default=2, gt=0, le=600)
    """All of that for one program; what does not end in time is told as not checked."""
    cached_baselines: int = Field(default=256, ge=1, le=100_000)
    """Workloads whose baselines a worker remembers."""
