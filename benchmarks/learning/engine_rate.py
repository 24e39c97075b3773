"""Tokens a second of the shipped policy in the generator's engine, beside an evaluator and alone.

    python -m benchmarks.learning.engine_rate PACK [--policy models/sparsesmith-28m] [--prompts 1024] [--modes shared alone]
        [--at-once 1024] [--out benchmarks/results]

The engine is started anew for each mode: `as shipped` with the service's own settings (a tenth of the GPU's memory, 64 samples at a time);
`shared` with the same memory and `--at-once` samples; `alone` with most of the memory and as many. No other process works on
the GPU meanwhile. Prompts are of the core validation matrices, spmv float32 and float64 and spmm with 32 columns in turns, written
before the clock starts; every fourth is sampled once before, so that nothing is compiled within. Tokens are those sampled,
end tokens included; seconds from the first prompt handed to the engine to the last end. `own_us_a_token` is the processor time of the process
that serves users, which has one thread for all samples; it is the same work with and without a GPU. Without one the engine is the
CPU's, and its tokens a second say nothing of a GPU's. The result file is written after every mode.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.learning.serving import serving_sampler
from benchmarks.matrices.suites import Matrix, core_sources
from benchmarks.origin import RESULTS, command, folder_of, machine, source_commit, write_result
from benchmarks.tuning.sweep import Plan, parse_plan
from services.generator.policy.engine import EnginePrompt, Sample
from services.generator.policy.sampling import PolicySampler
from services.generator.settings import GeneratorSettings
from sparsesmith_proto.kernel import Workload

PLANS = ("spmv:float32:1:1", "spmv:float64:1:1", "spmm:float32:32:1")
ALONE = 0.85
"""Of the GPU's memory."""
WARM_UP = 4
"""One prompt in so many is sampled before."""

Row = dict[str, Any]


def modes(at_once: int) -> dict[str, Mapping[str, Any]]:
    """Settings of the generator by name."""
    return {
        "as shipped": {},
        "shared": {"engine_max_samples": at_once},
        "alone": {"engine_max_samples": at_once, "engine_gpu_memory_fraction": ALONE},
    }


def main() -> None:
    options = _options()
    matrices = [each.load() for each in core_sources(options.pack) if each.split == "validation"][: options.matrices]
    rows: list[Row] = []
    for name in options.modes:
        rows.append({"mode": name, **asyncio.run(_rate(modes(options.at_once)[name], matrices, options))})
        _write(rows, options)


async def _rate(changes: Mapping[str, Any], matrices: Sequence[Matrix], options: argparse.Namespace) -> Row:
    settings = GeneratorSettings(policy_dir=options.policy, **changes)
    began = time.monotonic()
    async with serving_sampler(settings) as sampler:
        start_s = time.monotonic() - began
        prompts = await asyncio.to_thread(written, sampler, matrices, options.prompts)
        await sampled(sampler, prompts[::WARM_UP], settings)
        began, own_began = time.monotonic(), time.process_time()
        samples = await sampled(sampler, prompts, settings)
        seconds, own_s = time.monotonic() - began, time.process_time() - own_began
    memory, at_once = settings.engine_gpu_memory_fraction, settings.engine_max_samples
    return {"at_once": at_once, "gpu_memory": memory, "start_s": round(start_s, 1), **rate_of(samples, seconds, own_s)}


def rate_of(samples: Sequence[Sample], seconds: float, own_s: float) -> Row:
    """What so many samples took; `own_s`: processor time of the generator's process, without the engine's."""
    lengths = [len(each.token_ids) for each in samples]
    return {
        "samples": len(samples),
        "tokens": sum(lengths),
        "seconds": round(seconds, 3),
        "tokens_a_second": round(sum(lengths) / seconds, 1),
        "own_us_a_token": round(own_s / sum(lengths) * 1e6, 2),
        "samples_a_second": round(len(samples) / seconds, 2),
        "tokens_of_a_sample": {"median": median(lengths), "most": max(lengths)},
    }


def written(sampler: PolicySampler, matrices: Sequence[Matrix], count: int) -> list[EnginePrompt]:
    """Prompts of matrices and kinds of workload in turns, each with nonzeros of its own."""
    turns = islice(cycle(product(map(parse_plan, PLANS), matrices)), count)
    return [_prompt(sampler, matrix, plan, seed) for seed, (plan, matrix) in enumerate(turns)]


def _prompt(sampler: PolicySampler, matrix: Matrix, plan: Plan, seed: int) -> EnginePrompt:
    workload = Workload(
        pattern=matrix.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )
    prompt = sampler.options.prompt(sampler.writer.encoder, seed)
    return sampler.writer.write(matrix.pattern, workload, prompt)


async def sampled(sampler: PolicySampler, prompts: Sequence[EnginePrompt], settings: GeneratorSettings) -> list[Sample]:
    """All at once; the engine decodes as many at a time as it was started for."""
    engine = await sampler.host.serving()
    asked = (
        engine.sample(each, temperature=settings.temperature, max_tokens=settings.max_program_tokens)
        for each in prompts
    )
    return await asyncio.gather(*asked)


def _write(rows: Sequence[Row], options: argparse.Namespace) -> None:
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if kind == "cuda" else "CPU"
    result = {
        "kind": "engine_rate",
        "device": {"kind": kind, "name": name},
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.learning.engine_rate"),
        "policy": options.policy.name,
        "rows": list(rows),
    }
    path = options.out / (folder_of(name) if kind == "cuda" else "cpu") / "engine-rate.json"
    write_result(path, result)
    print(json.dumps(rows[-1]), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    parser.add_argument("--prompts", type=int, default=1024)
    parser.add_argument("--matrices", type=int, default=28, help="the smallest ones")
    parser.add_argument("--modes", nargs="+", choices=list(modes(1)), default=list(modes(1)))
    parser.add_argument(
        "--at-once", type=int, default=1024, help="samples that the engine decodes at a time; most 1024"
    )
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
