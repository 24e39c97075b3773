"""What training a language model by adapters costs: samples of a real engine, one update on them, the adapter back in the engine.

    python -m benchmarks.learning.adapter_update convert MODEL.gguf FOLDER       a 4-bit file's weights in bfloat16, once
    python -m benchmarks.learning.adapter_update measure FOLDER [--records 8] [--prompt-tokens 512]

`convert` wants `pip install gguf`. Prompts are the canary's, of which the last `--prompt-tokens` are asked (0: all; a CPU
takes minutes for one of 4,300 tokens). Every second sample is rewarded, whatever it says: this measures cost, and that
engine and trainer agree, not whether a model of this size learns.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.origin import RESULTS, machine, source_commit, write_result
from services.generator.policy.engine import Engine, EngineOptions, Sample, TokenPrompt, load_engine
from services.generator.policy.probe_set import ProbePattern, probe_set
from services.trainer.adapters import AdaptedModel
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import SampleBatch, TrainingBatch, UsableRecord, assemble, assemble_samples
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import Asked
from services.trainer.opened_policy import open_policy
from services.trainer.settings import TrainerSettings
from sparsesmith_proto.kernel import Candidate, DeviceDescription, Mismatch, Prompt, Sampled
from sparsesmith_proto.reward import RewardRecord

DEVICE = DeviceDescription(
    kind="interpreter", name="none", architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={}
)
GROUP = 4
"""Samples of a prompt."""


@dataclass(frozen=True)
class Round:
    """Samples of one version on the same prompts."""

    asked: Sequence[Asked]
    samples: Sequence[Sample]
    seconds: float

    @property
    def num_tokens(self) -> int:
        return sum(len(each.token_ids) for each in self.samples)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    converting = commands.add_parser("convert")
    converting.add_argument("gguf", type=Path)
    converting.add_argument("folder", type=Path)
    measuring = commands.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--out", type=Path, default=RESULTS / "cpu" / "adapter-update.json")
    measuring.add_argument("--name", default="SmolLM2-135M-Instruct, from 4 bits")
    measuring.add_argument("--records", type=int, default=8)
    measuring.add_argument("--prompt-tokens", type=int, default=512)
    measuring.add_argument("--program-tokens", type=int, default=128)
    measuring.add_argument("--rank", type=int, default=16)
    measuring.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.command == "convert":
        convert(options.gguf, options.folder)
    else:
        result = measured(options)
        write_result(options.out, result)
        print(json.dumps(result, indent=1))


def convert(gguf: Path, folder: Path) -> None:
    """A Hugging Face folder in bfloat16, with the file's own tokenizer and chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    quantized = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=quantized
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    settings = TrainerSettings(
        policy_dir=options.folder,
        adapter_rank=options.rank,
        max_text_tokens=6144,
        device="cpu",
        algorithm="rloo",
        epochs=1,
    )
    began = time.monotonic()
    policy = open_policy(settings, "cpu")
    load_s = time.monotonic() - began
    networks = policy.networks
    assert isinstance(networks, AdaptedModel)
    learner = Learner(
        networks, LearnerOptions(algorithm="rloo", epochs=1, program_kl_limit=1.0, micro_batch_tokens=8192)
    )
    patterns = [probe_set()[number % len(probe_set())] for number in range(-(-options.records // GROUP))]
    whole = [policy.prompts.asked(each.pattern, each.workload, _prompt(each)) for each in patterns]
    asked = [replace(each, text_ids=each.text_ids[-options.prompt_tokens :]) for each in whole]
    asked = [asked[number // GROUP] for number in range(options.records)]
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as exchange:
        engine, engine_s = runner.run(_started(options))
        first = runner.run(_round(engine, asked, options.program_tokens))
        first_gap = learner.published_gap(_batch_of(first), shipped=True)
        began = time.monotonic()
        metrics = learner.update(_training_batch(patterns, first))
        update_s = time.monotonic() - began
        began = time.monotonic()
        path = Path(exchange) / networks.published_name(1)
        networks.publish(path, 1)
        publish_s = time.monotonic() - began
        began = time.monotonic()
        runner.run(engine.adopt(path, 1))
        adopt_s = time.monotonic() - began
        second = runner.run(_round(engine, asked, options.program_tokens))
        second_gap = learner.published_gap(_batch_of(second), shipped=False)
        apart = learner.published_gap(_batch_of(second), shipped=True)
        size = sum(each.stat().st_size for each in path.iterdir())
        runner.run(engine.close())
    return {
        "kind": "adapter_update",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": " ".join(["python -m benchmarks.learning.adapter_update measure FOLDER", *sys.argv[3:]]),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "model": options.name,
        "parameters": sum(each.numel() for each in networks.parameters() if not each.requires_grad),
        "adapter_rank": options.rank,
        "adapter_parameters": sum(each.numel() for each in networks.policy_parameters()),
        "adapter_bytes": size,
        "threads": options.threads,
        "records": options.records,
        "whole_prompt_tokens": [len(each.text_ids) for each in whole],
        "prompt_tokens": len(asked[0].text_ids),
        "engine_start_s": engine_s,
        "trainer_load_s": load_s,
        "samples": {
            name: {"tokens": each.num_tokens, "seconds": each.seconds, "tokens_s": each.num_tokens / each.seconds}
            for name, each in (("shipped", first), ("adapter", second))
        },
        "update_s": update_s,
        "update_tokens": int(metrics["tokens"]),
        "update_tokens_with_prompts": int(metrics["tokens"]) + sum(len(each.text_ids) for each in asked),
        "program_kl": metrics["program_kl"],
        "publish_s": publish_s,
        "adopt_s": adopt_s,
        "trainer_most_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "gap": {
            "shipped": vars(first_gap),
            "adapter": vars(second_gap),
            "adapter_against_shipped_weights": vars(apart),
        },
    }


async def _started(options: argparse.Namespace) -> tuple[Engine, float]:
    began = time.monotonic()
    context = 6144 if not options.prompt_tokens else options.prompt_tokens + options.program_tokens
    chosen = EngineOptions(options.folder, context, max_samples=16, adapter_rank=options.rank)
    return Engine(await asyncio.to_thread(load_engine, chosen)), time.monotonic() - began


async def _round(engine: Engine, asked: Sequence[Asked], most: int) -> Round:
    began = time.monotonic()
    prompts = [TokenPrompt(each.text_ids) for each in asked]
    samples = await asyncio.gather(*(engine.sample(each, temperature=1.0, max_tokens=most) for each in prompts))
    return Round(asked, samples, time.monotonic() - began)


def _prompt(asked: ProbePattern) -> Prompt:
    return Prompt(encoder="text", sample_seed=asked.sample_seed, architecture="sm_90")


def _sampled(sample: Sample, number: int) -> Sampled:
    prompt = Prompt(encoder="text", sample_seed=0, architecture="sm_90")
    return Sampled(
        prompt=prompt,
        group=f"g{number // GROUP}",
        token_ids=sample.token_ids,
        logprobs=sample.logprobs,
        temperature=1.0,
        first_version=0,
        last_version=0,
    )


def _batch_of(taken: Round) -> SampleBatch:
    return assemble_samples([_sampled(each, number) for number, each in enumerate(taken.samples)], taken.asked)


def _training_batch(patterns: Sequence[ProbePattern], taken: Round) -> TrainingBatch:
    records = []
    for number, (sample, asked) in enumerate(zip(taken.samples, taken.asked, strict=True)):
        sampled = _sampled(sample, number)
        record = RewardRecord(
            record_id=f"r{number}",
            workload=patterns[number // GROUP].workload,
            candidate=Candidate(candidate_id="c", program=sample.text, origin=sampled),
            outcome=Mismatch(message=""),
            best_baseline_us=1,
            default_baseline_us=1,
            rewards={"milestone": float(number % 2)},
            device=DEVICE,
        )
        records.append(UsableRecord(record, sampled, asked, record.rewards["milestone"]))
    return assemble(records, 0)


if __name__ == "__main__":
    main()
