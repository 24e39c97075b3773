"""What one online update costs: the shipped policy's trainer on a batch of programs, and a step of each Muon.

    python -m benchmarks.learning.trainer_update [--records 32] [--threads 2] [--torchs-own]

Programs are those that the families propose for the canary's patterns, with rewards that differ; `--torchs-own` also times one step
of `torch.optim.Muon`, which orthogonalises in bfloat16 (a minute and a half on a CPU without such arithmetic).
"""

import argparse
import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.origin import RESULTS, machine, source_commit, write_result
from services.generator.policy.probe_set import ProbePattern, probe_set
from services.trainer.muon import Muon
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import TrainingBatch, UsableRecord, assemble
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import Asked
from services.trainer.opened_policy import load_networks
from services.trainer.tokenizer import encode_program, load_tokenizer
from sparsesmith.families.proposal import propose
from sparsesmith.policy.description import load_description
from sparsesmith.policy.embedding import text_token_ids
from sparsesmith.prompts.arrays import PROFILED, EncoderKind, PromptInputs, prompt_inputs
from sparsesmith_proto.kernel import Candidate, DeviceDescription, Mismatch, Prompt, Sampled
from sparsesmith_proto.reward import RewardRecord

DEVICE = DeviceDescription(
    kind="interpreter", name="none", architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={}
)

GROUP = 4
"""Programs of a prompt."""
TOLD: Mapping[EncoderKind, Mapping[str, Any]] = {
    kind: {"num_sms": 132, "copy_bandwidth_gbs": 4260.0} for kind in PROFILED
}
"""What prompts say of the device; those of other encoders say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "trainer-update.json")
    parser.add_argument("--records", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torchs-own", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(options.threads)
    learner = Learner(load_networks(options.policy), LearnerOptions(program_kl_limit=100.0, critic_gate=0.0))
    batch = make_batch(options.policy, options.records)
    before = _read_previous(options.out)
    steps = {"float32": step_seconds(learner, Muon)}
    if options.torchs_own:
        steps["torch.optim.Muon"] = step_seconds(learner, _torchs_own)
    elif "torch.optim.Muon" in before:
        steps["torch.optim.Muon"] = before["torch.optim.Muon"]
    print(steps, flush=True)
    began, processor = time.monotonic(), time.process_time()
    metrics = learner.update(batch)
    result = {
        "kind": "trainer_update",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": "python -m benchmarks.learning.trainer_update --torchs-own",
        "machine": machine(),
        "torch": torch.__version__,
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
        "records": options.records,
        "tokens": int(batch.text.sampled_mask_BT.sum()),
        "update_s": time.monotonic() - began,
        "update_processor_s": time.process_time() - processor,
        "steps": metrics["steps"],
        "muon_step_s": steps,
    }
    write_result(options.out, result)
    print(json.dumps(result, indent=1))


def make_batch(policy: Path, count: int) -> TrainingBatch:
    """See `make_records`."""
    return assemble(make_records(policy, count), 0)


@dataclass(frozen=True)
class _Shown:
    """A prompt, and programs in place of its samples."""

    asked: ProbePattern
    prompt: Prompt
    inputs: PromptInputs
    programs: Sequence[str]


def _shown(asked: ProbePattern, encoder: EncoderKind) -> _Shown:
    workload = asked.workload
    proposed = propose(asked.pattern, workload.operation, workload.element_type, workload.num_dense_cols, 10)
    prompt = Prompt(encoder=encoder, sample_seed=asked.sample_seed, architecture="sm_90", **TOLD.get(encoder, {}))
    inputs = prompt_inputs(asked.pattern, workload, prompt)
    return _Shown(asked, prompt, inputs, [proposed[3 * number].program for number in range(GROUP)])


def make_records(policy: Path, count: int) -> list[UsableRecord]:
    """Programs of the families in place of samples, four a prompt, every second one wrong; after the last prompt the first
    one's come again."""
    tokenizer, encoder = load_tokenizer(policy / "tokenizer.json"), load_description(policy).encoder
    shown = [_shown(each, encoder) for each in probe_set()[: math.ceil(count / GROUP)]]
    text_ids = [tuple(text_token_ids(tokenizer, each.inputs)) for each in shown]
    records = []
    for number in range(count):
        place = number // GROUP % len(shown)
        asked, prompt, workload = shown[place].asked, shown[place].prompt, shown[place].asked.workload
        program = shown[place].programs[number % GROUP]
        token_ids = tuple(encode_program(tokenizer, program))
        sampled = Sampled(
            prompt=prompt,
            group=asked.name,
            token_ids=token_ids,
            logprobs=(-0.02,) * len(token_ids),
            temperature=1.0,
            first_version=0,
            last_version=0,
        )
        record = RewardRecord(
            record_id=f"r{number}",
            workload=workload,
            candidate=Candidate(candidate_id="c", program=program, origin=sampled),
            outcome=Mismatch(message=""),
            best_baseline_us=1,
            default_baseline_us=1,
            rewards={"milestone": 1.0 if number % 2 else -0.4},
            device=DEVICE,
        )
        known = Asked(text_ids[place], shown[place].inputs)
        records.append(UsableRecord(record, sampled, known, record.rewards["milestone"]))
    return records


def step_seconds(learner: Learner, optimizer: Any) -> float:
    """One step on the matrices of the policy's layers."""
    named = learner.networks.named_parameters()
    matrices = [
        torch.nn.Parameter(each.detach().clone()) for name, each in named if each.ndim == 2 and ".layers." in name
    ]
    stepping = optimizer(matrices, lr=1e-4, weight_decay=0.0)
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    began = time.monotonic()
    stepping.step()
    return time.monotonic() - began


def _torchs_own(matrices: list[torch.nn.Parameter], lr: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")


def _read_previous(path: Path) -> dict[str, float]:
    """Steps of the result that stands there: torch's own need not be timed again each time."""
    return json.loads(path.read_text(encoding="utf-8"))["muon_step_s"] if path.exists() else {}


if __name__ == "__main__":
    main()
