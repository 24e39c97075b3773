"""Settings of the generator, read from the environment in `__main__` and handed down."""

from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sparsesmith.policy.adapter import MOST_RANK
from sparsesmith_proto.message import Architecture


class GeneratorSettings(BaseSettings):
    """Every field is read from SPARSESMITH_GENERATOR_<NAME>."""

    model_config = SettingsConfigDict(
        env_prefix="SPARSESMITH_GENERATOR_", use_attribute_docstrings=True, populate_by_name=True
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port to listen on."""
    published_on: str = Field(default="", max_length=253)
    """Address that others reach the service by where `host` is another, as in a container. Read by
    `http.access`."""
    keys: Literal["auto", "on", "off"] = "auto"
    """Whether requests need an API key (`sparsesmith keys create`). auto: where others than this machine can reach the
    service. Read by `http.access`."""
    stop_grace_s: int = Field(default=10, ge=1, le=600)
    """How long open connections may finish when the service stops."""

    max_header_bytes: int = Field(default=16 * 1024, ge=1024, le=2**20)
    """Of a request's target and headers; more are answered 400 or 431."""
    header_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """How long the headers of a request may take; then the connection is closed."""
    body_timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Longest pause within a body; all of it may take this and a second for each 16 KiB."""
    max_connections: int = Field(default=512, ge=8, le=100_000)
    """Open connections; requests on others are answered 503."""

    signing_dir: Path | None = None
    """Folder of the key that signs reports, made there at the first start. Empty: reports are not signed."""

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        validation_alias=AliasChoices("SPARSESMITH_REDIS_URL", "REDIS_URL"),
    )
    """Address of Redis: redis://, rediss://, unix:///path.
    From SPARSESMITH_REDIS_URL, else REDIS_URL."""

    traces_endpoint: str = Field(default="", max_length=2000)
    """Where traces of jobs go, OTLP by HTTP: http://HOST:4318/v1/traces (extra `tracing`). Empty: nowhere."""

    policy_dir: Path | None = Path("models/sparsesmith-28m")
    """Folder of the policy. Empty: no policy, `families` is all there is."""
    policy_kind: str = Field(default="auto", pattern=r"^[a-z][a-z0-9_]{0,31}$")
    """What the folder holds: `matrix` (a matrix encoder beside the language model), `text` (any language model of
    Hugging Face, asked in words), or a name that another package registered under `sparsesmith.policy_kinds`.
    auto: matrix where it fits, else text."""
    adapter_rank: int = Field(
        default=0,
        ge=0,
        le=MOST_RANK,
        validation_alias=AliasChoices("SPARSESMITH_GENERATOR_ADAPTER_RANK", "SPARSESMITH_ADAPTER_RANK"),
    )
    """Largest rank of the adapters that a `text` policy is given as it learns; the engine keeps room for it. Also from
    SPARSESMITH_ADAPTER_RANK, which sets the trainer's as well. 0: it is given whole weights."""
    value_dir: Path | None = None
    """Folder of a value model that ranks samples before they are graded (docs/training.md). Empty: all are graded.
    Off: no GPU has shown yet that it pays; and samples chosen by it are not what a trainer may learn from."""
    value_oversampling: int = Field(default=4, ge=2, le=16)
    """Samples taken for each that is graded, where there is a value model."""
    cost_model_dir: Path | None = Path("models/cost-h200")
    """Folder of the cost model that `families` ranks by on its device. Missing: the analytic estimate."""
    mutates: bool = False
    """Whether `auto` changes the fastest programs by mutators, too. Off: no GPU has shown yet that it pays."""
    polishes: bool = True
    """Whether `auto` and `families` end with a few changes of the fastest programs to sizes of blocks that no family
    offers: 1.010x (1.004 to 1.018) on validation matrices, for one to two seconds (docs/tuning.md)."""
    edits: bool = False
    """Whether in `auto` the policy is shown the fastest programs and asked for better ones, too. Off: no GPU has shown
    yet that it pays."""
    endpoint_url: str = Field(default="", max_length=2000, pattern=r"^(https?://[^\s@?#]+)?$")
    """Address of a model that `refine` may ask, OpenAI-compatible, up to `/v1`. It is sent the task or a digest of the
    matrix, the programs of the search and what became of them (docs/security.md). Empty: none."""
    endpoint_model: str = Field(default="", max_length=200)
    """As that address calls it."""
    endpoint_key_file: Path | None = None
    """File with the address's key, in one line. Empty: it asks for none."""
    endpoint_timeout_s: float = Field(default=180.0, gt=0, le=3600)
    """An answer may take so long, tries before it included."""
    endpoint_silence_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest pause within an answer."""
    endpoint_retries: int = Field(default=3, ge=0, le=20)
    """Tries after the first, where it answers 429 or 5xx, says nothing or ends early."""
    endpoint_first_pause_s: float = Field(default=1.0, gt=0, le=60)
    """Before the second try; it doubles each time, and is as long as the address asks."""
    endpoint_max_tokens: int = Field(default=8192, ge=0, le=1_000_000)
    """Longest answer. 0: the address decides."""
    endpoint_temperature: float | None = Field(default=None, ge=0, le=2)
    """None: the address decides."""
    endpoint_at_once: int = Field(default=4, ge=1, le=64)
    """Questions of one search that are asked at a time."""
    refine_history_characters: int = Field(default=24_000, ge=0, le=1_000_000)
    """Of programs and what became of them, in what a model is told; the oldest are left out, the program that it is
    asked about never."""
    exchange_dir: Path = Path(".sparsesmith/policy")
    """Folder where the trainer leaves published weights."""
    policy_poll_s: float = Field(default=1.0, gt=0, le=60)
    """How often the policy channel is asked for new weights."""
    canary_samples: int = Field(default=64, ge=8, le=1024)
    """Probe samples that a new version is judged by before it serves, over 8 prompts; fewer find less."""
    canary_hold_s: float = Field(default=60.0, ge=1, le=600)
    """A probe that keeps users' samples waiting for longer is given up; they go on once the version in service is
    back."""
    canary_verdict_s: float = Field(default=300.0, ge=1, le=3600)
    """How long evaluators and trainer may take over the probe samples, while users are served."""
    canary_retry_s: float = Field(default=30.0, ge=0.1, le=900)
    """Pause before a version is probed again whose probe could not be finished; doubles each time."""
    max_logprob_gap: float = Field(default=0.02, gt=0, le=10)
    """Nats a telling token that engine and trainer may differ more than for the shipped version."""
    max_logprob_gap_program: float = Field(default=0.15, gt=0, le=100)
    """Nats a program, likewise."""
    architecture: Architecture = "sm_90"
    """GPU generation that prompts ask for."""
    num_sms: int = Field(default=132, ge=1, le=65536)
    """Multiprocessors of the GPU that prompts ask for; policies with a `profiled` encoder look at it."""
    copy_bandwidth_gbs: float = Field(default=4260.0, gt=0, le=1e9)
    """Bandwidth of that GPU, read plus written, in 1e9 bytes a second; likewise."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature."""
    exploring_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the groups that are sampled at `exploring_temperature` instead, to see what is seldom written. Off: a
    course with a quarter of them gained nothing (docs/courses.md)."""
    exploring_temperature: float = Field(default=1.2, gt=0, le=2)
    """... their temperature. Their log-probabilities are of it, and the trainer computes with it."""
    exploring_min_p: float = Field(default=0.0, ge=0, lt=1)
    """... no token of theirs is less likely, at that temperature, than this share of the likeliest. Above 0 no trainer
    learns from them."""
    max_program_tokens: int = Field(default=1536, ge=16, le=32768)
    """Longest program a sample may have."""
    max_prompt_tokens: int = Field(default=1024, ge=16, le=65536)
    """Longest prompt; with `max_program_tokens` the engine's context length. A policy asked in text needs 4096 or
    more."""

    engine_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the engine. auto: float32 on a CPU, bfloat16 on a GPU."""
    engine_max_samples: int = Field(default=64, ge=1, le=1024)
    """Samples that the engine decodes at a time."""
    engine_kv_cache_gib: int = Field(default=1, ge=1, le=256)
    """Host memory for the key-value cache when the engine runs on a CPU."""
    engine_gpu_memory_fraction: float = Field(default=0.1, gt=0, le=0.95)
    """Share of the GPU's memory that the engine takes, beside evaluator and trainer."""
    engine_threads: str = Field(default="auto", max_length=200)
    """Cores of a CPU engine, as VLLM_CPU_OMP_THREADS_BIND takes them."""
    engine_restart_s: float = Field(default=5.0, ge=0, le=600)
    """Pause before a dead engine is started again."""

    max_waiting_jobs: int = Field(default=256, ge=1, le=100_000)
    """Accepted jobs that wait for their turn; beyond it requests are answered 503."""
    max_running_jobs: int = Field(default=4, ge=1, le=256)
    """Jobs that share the engine and the evaluators at a time; where there are several, one in four of the places takes
    only small ones."""
    samples_in_flight: int = Field(default=16, ge=1, le=1024)
    """Samples that one job has in the engine at a time."""
    batch_candidates: int = Field(default=16, ge=1, le=256)
    """Candidates in an evaluation job."""
    batches_in_flight: int = Field(default=2, ge=1, le=64)
    """Evaluation jobs that one request has in the queue at a time."""
    first_grade_patience_s: float = Field(default=120.0, gt=0, le=3600)
    """How far past its budget a job waits for its first evaluation (a cold evaluator)."""

    gpu_patience_s: float = Field(default=120.0, gt=0, le=86400)
    """How long a job that is for one kind of GPU waits for it where no evaluator has it any more; then it is answered
    503. Longer than an autoscaler takes to bring one back."""

    max_body_bytes: int = Field(default=2 * 2**30, ge=1024)
    """Largest upload."""
    max_json_bytes: int = Field(default=64 * 2**20, ge=1024)
    """Largest JSON body."""
    max_json_indices: int = Field(default=2_000_000, ge=1)
    """Entries of each index list of a JSON body."""
    max_nnz: int = Field(default=50_000_000, ge=1, lt=2**31)
    """Nonzeros of an uploaded matrix."""
    max_stored_bytes: int = Field(default=8 * 2**30, ge=2**20)
    """Of the matrices in Redis, all jobs together; beyond it requests are answered 503."""
    max_operand_bytes: int = Field(default=64 * 2**30, ge=2**20)
    """Of the dense operands of a product: what no GPU holds is refused at once."""
    posted_tasks: bool = False
    """Whether `POST /v1/tasks` takes a flashinfer-bench Definition: its reference is somebody's code. Evaluators run it
    only where their own setting of this name says so."""
    max_parsed_matrices: int = Field(default=4, ge=1, le=256)
    """Matrices that are parsed at a time, which bounds memory; others wait."""
    max_wait_s: float = Field(default=60.0, ge=0, le=3600)
    """Longest `Prefer: wait=N` that is honoured."""
    history_days: int = Field(default=30, ge=1, le=3650)
    """How long a job that has ended can be looked at, with all that was tried for it."""
    history_jobs: int = Field(default=10_000, ge=1, le=1_000_000)
    """Jobs that have ended and are kept; beyond it the oldest go."""
    cache_ttl_s: int = Field(default=30 * 86400, ge=0)
    """How long an answer stays in the cache of tuned kernels. 0: no cache."""

    @model_validator(mode="after")
    def _endpoint_has_a_model(self) -> Self:
        if self.endpoint_url and not self.endpoint_model:
            raise ValueError("endpoint_model: needed where endpoint_url is given")
        return self
