"""Settings of the trainer, read from the environment in `__main__` and handed down."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sparsesmith.policy.adapter import MOST_RANK


class TrainerSettings(BaseSettings):
    """Every field is read from SPARSESMITH_TRAINER_<NAME>; `redis_url` from SPARSESMITH_REDIS_URL or REDIS_URL."""

    model_config = SettingsConfigDict(
        env_prefix="SPARSESMITH_TRAINER_", populate_by_name=True, use_attribute_docstrings=True
    )

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", validation_alias=AliasChoices("SPARSESMITH_REDIS_URL", "REDIS_URL")
    )
    """Where records come from: redis://, rediss:// or unix://."""
    traces_endpoint: str = Field(default="", max_length=2000)
    """Where traces of jobs go, OTLP by HTTP: http://HOST:4318/v1/traces (extra `tracing`). Empty: nowhere."""

    policy_dir: Path = Path("models/sparsesmith-28m")
    """Folder of the policy to improve, which is also the reference that KL pulls to."""
    policy_kind: Literal["auto", "matrix", "text"] = "auto"
    """What the folder holds: `matrix` (policy.json and an encoder beside the language model), or `text` (any language
    model of Hugging Face, asked in words), which is trained by adapters. auto: text where there is neither policy.json
    nor an encoder and `adapter_rank` is above 0."""
    exchange_dir: Path = Path(".sparsesmith/policy")
    """Folder where weights are published, shared with the generator."""
    state_dir: Path = Path(".sparsesmith/trainer")
    """Folder of checkpoints, heartbeat and updates.jsonl."""
    consumer: str = Field(default="trainer", pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """Name in the consumer group; the same after a restart, so that unacknowledged records come again."""
    folder_poll_s: float = Field(default=5.0, gt=0, le=600)
    """How often a policy folder that is not there is looked for again."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where there is one."""
    gpu: int = Field(default=0, ge=0, le=63)
    """Which of the GPUs that it sees, counted from 0; the generator's engine takes the first. Under torchrun each
    process has its own instead."""
    num_threads: int = Field(default=1, ge=1, le=256)
    """Cores that an update takes on a CPU; the generator and the evaluators need the others."""
    niceness: int = Field(default=10, ge=0, le=19)
    """How far the trainer stands back for other processes."""
    gpu_memory_fraction: float = Field(default=0.2, gt=0, le=0.95)
    """Most of a GPU's memory that the trainer takes, beside generator and evaluator."""

    reward: Literal["milestone", "improvement", "paper", "paper_bounded"] = "milestone"
    """Reward scheme."""
    batch_records: int = Field(default=32, ge=1, le=4096)
    """Records of a full batch."""
    min_records: int = Field(default=8, ge=1, le=4096)
    """Records that are enough once `max_wait_s` is over."""
    max_wait_s: float = Field(default=20.0, ge=0, le=3600)
    """How long a batch waits for more records after its first, and a group for more of its samples after its newest."""
    max_policy_age: int = Field(default=4, ge=0, le=1000)
    """Versions that a record may be behind the policy; older ones are dropped."""
    held_out_file: Path | None = None
    """Digests of patterns, one a line, that nothing is learned from: those that the policy is judged by."""
    max_text_tokens: int = Field(default=2800, ge=16, le=32768)
    """Longest text of a record, what was asked in words and the program together; longer ones are skipped. A `text`
    policy needs 6144 or more, and its model a context of as many."""

    algorithm: str = Field(default="rloo", pattern=r"^[a-z][a-z0-9_]{0,31}$")
    """What updates optimise: `rloo`, `ppo`, `expert`, or a name that another package registered under the entry points
    `sparsesmith.algorithms`. `rloo` and `expert`, which imitates the best of each group, have no critic. `rloo` is what
    taught most in the same seconds (docs/training.md). Of ours `ppo` alone reads `value_rate`, `clip_low`, `clip_high`,
    `value_clip`, and `gae_lambda` to `critic_warmup`."""
    adapter_rank: int = Field(
        default=0,
        ge=0,
        le=MOST_RANK,
        validation_alias=AliasChoices("SPARSESMITH_TRAINER_ADAPTER_RANK", "SPARSESMITH_ADAPTER_RANK"),
    )
    """Rank of the adapters that a `text` policy is trained by; at most the model's width. Also from
    SPARSESMITH_ADAPTER_RANK, which sets what the generator takes as well. 0: such policies are not trained."""
    adapter_scale: float = Field(default=2.0, gt=0, le=64)
    """What adapters say is multiplied by this (alpha / rank of LoRA)."""
    adapter_rate: float = Field(default=1e-4, ge=0, le=0.1)
    """Learning rate of adapters (AdamW)."""
    recomputes_layers: bool = True
    """Whether the layers of a `text` policy are computed again for the gradients: a third more time, and memory for
    one layer's inner states instead of all."""
    epochs: int = Field(default=2, ge=1, le=32)
    """Passes over a batch."""
    minibatch_records: int = Field(default=8, ge=1, le=4096)
    """Records an optimizer step."""
    micro_batch_tokens: int = Field(default=2048, ge=64, le=1_000_000)
    """Tokens that are in memory at a time, padding included: bounds memory, changes nothing else."""
    matrix_rate: float = Field(default=1e-4, ge=0, le=0.1)
    """Learning rate of the layers' weight matrices (Muon). Adapters have `adapter_rate`."""
    other_rate: float = Field(default=3e-5, ge=0, le=0.1)
    """Learning rate of embeddings, norms and the rest (AdamW)."""
    value_rate: float = Field(default=1e-3, ge=0, le=0.1)
    """Learning rate of the value head."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio current / proximal is clipped below 1 - this."""
    clip_high: float = Field(default=0.28, gt=0, le=10)
    """... and above 1 + this."""
    value_clip: float = Field(default=0.5, gt=0, le=100)
    """How far a value may move in an update, in units of reward."""
    importance_cap: float = Field(default=2.0, ge=1, le=100)
    """Bound of the weight proximal / behaviour of a token from an older policy."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] | Literal["length"] = 1.0
    """Lambda of generalized advantage estimation for the policy; `length`: nearer to 1 the longer the program. 0.95
    leaves 2 % of a reward at the first tokens of a program, where most is decided."""
    value_targets: Literal["returns", "bootstrapped"] = "returns"
    """What the critic learns at each token: its program's reward, or the value of the next token by `gae_lambda`."""
    group_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the leave-one-out group baseline in the advantage; the rest is the critic's."""
    advantage_scale: Literal["group", "batch"] = "group"
    """Advantages are in spreads of the sample's own group, or normalised over the tokens of the batch."""
    best_of: int = Field(default=4, ge=2, le=64)
    """Of how many samples the best one counts, for `best_share`."""
    best_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the groups' advantage that is for what a sample adds to the best of `best_of`; the rest is for what it
    is above the mean. Read where `advantage_scale` is `group`."""
    best_updates: int = Field(default=0, ge=0, le=1_000_000)
    """Updates over which `best_share` falls to 0, in a straight line; 0: it stays."""
    value_dir: Path | None = None
    """Folder of a value model that the critic begins as. Empty: a fresh head on the policy's hidden states. Off: no GPU
    has shown yet that it pays. Wants an `algorithm` that has a critic, as `taught_critic` does. With it `matrix_rate`
    is the rate of the critic's layers as well."""
    taught_critic: bool = False
    """Whether the critic begins as the policy folder's critic.safetensors, where there is one and the reward is
    `milestone`: it was taught what programs take, and is told what the library takes. Off: PPO with it was not ahead of
    `rloo` clear of chance."""
    critic_gate: float = Field(default=0.5, ge=0, le=1)
    """Explained variance of rewards at the tenth token from which the critic is asked; 0: always."""
    critic_warmup: int = Field(default=20, ge=0, le=100_000)
    """Updates that the policy waits for its critic at most; afterwards groups alone move it until the critic holds."""
    kl_coefficient: float = Field(default=0.02, ge=0, le=10)
    """Weight of the KL divergence from the reference policy, exact over all words, as a mean over tokens;
    with `rloo` over programs, whose tokens are added up."""
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1)
    """Weight of the entropy bonus."""
    imitation_share: float = Field(default=0.0, ge=0, le=0.5)
    """Share of each step of the policy that imitates the fastest programs known of workloads, one a workload, whoever
    wrote them (families and mutators where evaluators are set to tell of them: SPARSESMITH_EVALUATOR_TELLS_OF_ALL).
    Off: no GPU has shown yet that it pays."""
    imitated_programs: int = Field(default=16, ge=1, le=1024)
    """Of these, chosen anew for each update."""
    program_kl_limit: float = Field(default=0.2, gt=0, le=100)
    """Nats a program that an update may move the policy, KL(proximal || current): it ends early there, and what went
    further is taken back. A program's whole entropy is some 2.5 nats."""
    reference_kl_alarm: float = Field(default=5.0, gt=0, le=10_000)
    """Nats a program from the shipped policy, KL(current || shipped), beyond which every update warns."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradients are scaled down to this norm."""

    keep_checkpoints: int = Field(default=2, ge=1, le=100)
    """Newest checkpoints that stay on disk."""
    keep_published: int = Field(default=4, ge=2, le=100)
    """Newest published weights that stay on disk."""
    heartbeat_limit_s: float = Field(default=120.0, gt=0, le=3600)
    """`--check` calls a trainer alive whose last sign is younger."""

    @model_validator(mode="after")
    def _a_full_batch_is_enough(self) -> "TrainerSettings":
        if self.min_records > self.batch_records:
            raise ValueError(f"min_records: {self.min_records} is more than batch_records, {self.batch_records}")
        return self
