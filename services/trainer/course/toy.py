"""A course that a CPU learns in minutes: a policy of 0.2 million parameters that knows nine programs, half of them bad.

Everything else is what a large course has: the engine, the evaluator (its interpreter), the trainer, the canary. The
policy is made here, by learning each program equally well for each matrix; what remains is to find out which to write.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse
from tokenizers import Tokenizer

from services.trainer.course.course import CourseOptions
from services.trainer.course.lessons import Lesson
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.policy_model import PolicyNetworks, PolicySize, new_language_model, text_batch
from services.trainer.tokenizer import BOS_ID, TokenizerSize, encode_program, train_tokenizer
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.policy.checkpoint import Policy, save_policy, save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder, collate
from sparsesmith.prompts.arrays import PromptInputs, prompt_inputs
from sparsesmith_proto.kernel import Prompt, Workload

SIZE = PolicySize(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, intermediate=128, max_positions=1024)
STEPS = 120
POLICY = "policy-0"
DONE_FILE = "policy.json"

SETTINGS = {
    "SPARSESMITH_TRAINER_DEVICE": "cpu",
    "SPARSESMITH_TRAINER_NICENESS": "0",
    "SPARSESMITH_TRAINER_MINIBATCH_RECORDS": "16",
    "SPARSESMITH_TRAINER_MATRIX_RATE": "0.003",
    "SPARSESMITH_TRAINER_OTHER_RATE": "0.001",
    "SPARSESMITH_TRAINER_PROGRAM_KL_LIMIT": "0.3",
    "SPARSESMITH_TRAINER_MAX_WAIT_S": "60",
    "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
    "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1",
    "SPARSESMITH_GENERATOR_ENGINE_MAX_SAMPLES": "32",
    "SPARSESMITH_GENERATOR_MAX_PROMPT_TOKENS": "128",
    "SPARSESMITH_GENERATOR_MAX_PROGRAM_TOKENS": "80",
    "SPARSESMITH_GENERATOR_POLICY_POLL_S": "0.2",
    "SPARSESMITH_GENERATOR_CANARY_SAMPLES": "16",
    "SPARSESMITH_GENERATOR_CANARY_HOLD_S": "120",
    "SPARSESMITH_GENERATOR_CANARY_VERDICT_S": "600",
}
"""Of the services: a small engine, steps that a policy of this size takes well, a canary of 16 samples."""

_PROGRAM = """//@ format csr index=i32
//@ launch spmv grid=ceil_div(num_rows,{rows}) block=256
extern "C" __global__ void __launch_bounds__(256) spmv(int num_rows, int num_cols, int nnz, \
const int* __restrict__ row_offsets, const int* __restrict__ col_indices, const float* __restrict__ values, \
const float* __restrict__ x, float* __restrict__ y) {{
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / {lanes};
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row] + threadIdx.x % {lanes}; j < row_offsets[row + 1]; j += {lanes}) \
sum += values[j] * x[col_indices[j]];
  for (int step = {half}; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (threadIdx.x % {lanes} == 0) y[row] = sum;
}}
"""


def course(state: Path, seconds: float, piece_s: float = math.inf) -> CourseOptions:
    """On the policy that `make_policy` leaves in the folder: updates of 4 workloads x 8 samples."""
    return CourseOptions(
        state=state,
        policy=state / POLICY,
        seconds=seconds,
        piece_s=piece_s,
        judge_every_s=seconds / 2,
        judge_s=300,
        group=8,
        batch_groups=4,
        at_once=4,
        environment=SETTINGS,
    )


def program(lanes: int) -> str:
    """A right one: `lanes` threads a row."""
    return _PROGRAM.format(lanes=lanes, rows=256 // lanes, half=lanes // 2)


def programs() -> tuple[str, ...]:
    """Five that are right, of which some are faster, and a wrong one of each kind."""
    right = tuple(program(lanes) for lanes in (1, 2, 4, 8, 32))
    whole = program(4)
    return (
        *right,
        whole.replace("index=i32", "index=i33"),  # rejected
        whole.replace("float sum = 0;", "float sum = 0"),  # does not compile
        whole.replace("j < row_offsets[row + 1]", "j < row_offsets[row + 1] - 1"),  # mismatch
        whole.replace("sum += values[j] * x", "sum += 2 * values[j] * x"),  # mismatch
    )


def lessons() -> list[Lesson]:
    """Six small matrices of three kinds."""
    return [Lesson(name, pattern) for name, pattern in _patterns(seed=1)]


def probes() -> list[Lesson]:
    """Three others, which nothing is learned from."""
    return [Lesson(f"probe-{name}", pattern) for name, pattern in _patterns(seed=2)[::2]]


def _patterns(seed: int) -> list[tuple[str, Pattern]]:
    random, found = np.random.default_rng(seed), list[tuple[str, Pattern]]()
    for size in (96, 160):
        band = scipy.sparse.diags_array([1.0] * 5, offsets=[-2, -1, 0, 1, 2], shape=(size + seed, size + seed))
        scattered = scipy.sparse.random(size, size, density=0.1, rng=random)
        long = scipy.sparse.random(size // 4, 4 * size, density=0.2, rng=random)
        kinds = (("band", band), ("scattered", scattered), ("long", long))
        found += [(f"{kind}-{size}", pattern_from_scipy(scipy.sparse.csr_matrix(matrix))) for kind, matrix in kinds]
    return found


def make_policy(state: Path, seed: int = 0) -> None:
    """In a folder of the course's, unless it is there."""
    folder = state / POLICY
    if (folder / DONE_FILE).is_file():
        return
    known = programs()
    tokenizer = train_tokenizer(known, known, TokenizerSize(vocabulary=640, phrases=160, phrase_characters=160))
    model = new_language_model(SIZE, tokenizer.get_vocab_size(), seed)
    networks = PolicyNetworks(model, MatrixEncoder("structural", SIZE.hidden))
    learn(networks, tokenizer, known, [*lessons(), *probes()])
    save_tokenizer(tokenizer.to_str(), folder)
    description = PolicyDescription("toy", "structural", element_types=("float32",), operations=("spmv",))
    save_policy(Policy(networks.model, networks.encoder, description), folder)


def learn(networks: PolicyNetworks, tokenizer: Tokenizer, known: Sequence[str], asked: Sequence[Lesson]) -> float:
    """Each program for each matrix, a matrix a step; nats a program in the end, at least log(number of programs)."""
    text = text_batch([[BOS_ID]] * len(known), [encode_program(tokenizer, each) for each in known])
    prompts = [collate([_prompt(lesson)] * len(known)) for lesson in asked]
    optimizer, schedule = Optimizer([networks], matrix_rate=1e-2, other_rate=1e-2, decay=0.0), Schedule()
    nats = math.inf
    for step in range(STEPS):
        hidden = networks.hidden_states(prompts[step % len(prompts)], text)
        loss = -networks.logprobs(hidden, text)[0].sum(dim=1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(schedule.factor(step / STEPS))
        nats = float(loss.detach())
    return nats


def _prompt(lesson: Lesson) -> PromptInputs:
    workload = Workload(pattern=lesson.pattern.digest, operation="spmv", element_type="float32")
    return prompt_inputs(
        lesson.pattern, workload, Prompt(encoder="structural", sample_seed=1, architecture="sm_90", num_sms=132)
    )
