"""Programs that a policy writes for the core development matrices: one JSON line a workload.

    python -m benchmarks.learning.sample_policy PACK OUT.jsonl [--policy models/sparsesmith-28m] [--samples 16]
    python -m benchmarks.learning.sample_policy PACK OUT.jsonl --only unseen      validation and generated matrices
    python -m benchmarks.learning.sample_policy PACK OUT.jsonl --permuted 7       their rows and columns in a random order
    python -m benchmarks.learning.sample_policy PACK OUT.jsonl --temperature 1.6 --min-p 0.08
    python -m benchmarks.learning.sample_policy PACK OUT.jsonl --conditioning shuffled --examples EXAMPLES.jsonl.xz

`--conditioning`: the policy is shown another matrix of the same run, or none. `--examples` (what the offline stage
`examples` wrote) adds nats a program of the validation side under the same conditioning. `benchmarks.measure.run --samples OUT.jsonl` grades; it
reads from the file which matrices are permuted, what the policy was shown and how warm samples are.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from benchmarks.learning.conditioning import Conditioning, blind, shuffled
from benchmarks.matrices.suites import Matrix, Permuted, Source, core_sources, generated_sources
from benchmarks.tuning.sweep import parse_plan
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.examples import ExampleRules, Examples
from services.trainer.offline.judging import SamplingSettings, sample_programs
from services.trainer.offline.prompt_pool import Device, PromptPool, asked_for, build_pool
from services.trainer.offline.sides import Patterns
from services.trainer.offline.supervised import Nats, SupervisedSettings, held_out_nats
from services.trainer.offline.targets import TargetRule
from services.trainer.policy_model import PolicyNetworks
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import load_policy
from sparsesmith_proto.message import ElementType, Operation

PLANS = ("spmv:float32:1", "spmv:float64:1", "spmm:float32:32")
MOST_WORKLOADS = 200
"""Whose nats are told."""

Asked = tuple[Operation, ElementType, int]


def main() -> None:
    options = _options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrices = [source.load() for source in chosen_sources(options)]
    policy = load_policy(options.policy)
    networks = PolicyNetworks(policy.model, policy.encoder).to(device)
    if options.conditioning == "none":
        blind(networks.encoder)
    names = [each.name for each in matrices]
    pool = _pool(dict(zip(names, (each.pattern for each in matrices), strict=True)), networks, options, device)
    settings = SamplingSettings(
        options.samples, options.temperature, options.min_p, device=device, batch_sequences=options.batch
    )
    workloads = [_asked_of(plan) for plan in options.plan]
    asked = [(each, workload) for each in matrices for workload in workloads for _ in range(options.samples)]
    tokenizer = load_tokenizer(options.policy / "tokenizer.json")
    generator, began, programs = np.random.default_rng(0), time.monotonic(), list[str]()
    torch.manual_seed(0)
    for start in range(0, len(asked), settings.batch_sequences):
        part = asked[start : start + settings.batch_sequences]
        asked_of = [asked_for(*workload, Device(settings.architecture)) for _, workload in part]
        prompts = pool.batch([each.name for each, _ in part], asked_of, generator)
        programs += [text for text, _, _ in sample_programs(networks, prompts, tokenizer, settings)]
    print(f"{len(programs)} samples in {time.monotonic() - began:.0f} s on {device}")
    how = how_written(policy.description.name, options)
    if options.examples is not None:
        how["nats"] = nats_of(networks, options, device)
        print(json.dumps(how["nats"]))
    with options.out.open("w", encoding="utf-8") as out:
        for index in range(0, len(asked), options.samples):
            line = _line(*asked[index], programs[index : index + options.samples])
            out.write(json.dumps({**how, **line}) + "\n")


def how_written(policy: str, options: argparse.Namespace) -> dict[str, Any]:
    """The policy's name, and what is unusual about its prompts."""
    unusual = {"permuted": options.permuted, "conditioning": options.conditioning}
    if options.temperature != 1 or options.min_p:
        unusual |= {"temperature": options.temperature, "min_p": options.min_p or None}
    if options.only == "train":
        unusual["split"] = "train"
    return {"policy": policy, **{name: value for name, value in unusual.items() if value is not None}}


def chosen_sources(options: argparse.Namespace) -> list[Source]:
    """Those asked for, the pack's first; of the generated ones those up to `--generated-nnz`."""
    sources: list[Source] = [
        each
        for each in core_sources(options.pack)
        if options.only in (None, each.split) or (options.only == "unseen" and each.split == "validation")
    ]
    if options.only in ("generated", "unseen"):
        sources += [each for each in generated_sources() if each.nnz <= options.generated_nnz]
    if options.names is not None:
        sources = [each for each in sources if each.name in options.names]
    sources = sources[: options.most]
    return sources if options.permuted is None else [Permuted(each, options.permuted) for each in sources]


def _pool(
    patterns: Mapping[str, Pattern], networks: PolicyNetworks, options: argparse.Namespace, device: str
) -> PromptPool:
    """Prompts by a matrix's name: of the matrix, or of another one."""
    shown: Sequence[Pattern] = list(patterns.values())
    if options.conditioning == "shuffled":
        shown = shuffled(shown)
    named = dict(zip(patterns, shown, strict=True))
    return build_pool(named, networks.encoder.kind, options.samples, device, os.cpu_count() or 1)


def nats_of(networks: PolicyNetworks, options: argparse.Namespace, device: str) -> Nats:
    """Nats a program of the validation side's examples, by kind of example and part, under the conditioning."""
    packs = Patterns([options.pack, *options.more_packs])
    known = read_examples(options.examples, TargetRule()).workloads["validation"]
    known = [each for each in known if each.key.pattern in packs]
    chosen = known[:: max(1, -(-len(known) // MOST_WORKLOADS))]
    tokenizer = load_tokenizer(options.policy / "tokenizer.json")
    examples = Examples(chosen, tokenizer, ExampleRules())
    patterns = {name: packs.named(name) for name in sorted({each.key.pattern for each in examples.workloads})}
    pool = _pool(patterns, networks, options, device)
    return held_out_nats(networks, pool, list(examples.fixed()), SupervisedSettings(device=device))


def _asked_of(plan: str) -> Asked:
    parsed = parse_plan(f"{plan}:1")
    return parsed.operation, parsed.element_type, parsed.num_dense_cols


def _line(matrix: Matrix, workload: Asked, programs: list[str]) -> dict[str, object]:
    operation, element_type, num_dense_cols = workload
    return {
        "pattern": matrix.name,
        "operation": operation,
        "element_type": element_type,
        "num_dense_cols": num_dense_cols,
        "programs": programs,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=1.0, help="of the samples")
    parser.add_argument(
        "--min-p", type=float, default=0.0, help="no token is less likely than this share of the likeliest"
    )
    parser.add_argument("--plan", nargs="+", default=PLANS, help="operation:type:columns")
    sides = ("train", "validation", "generated", "unseen")
    parser.add_argument("--only", choices=sides, help="of the split; unseen: validation and generated matrices")
    parser.add_argument("--generated-nnz", type=float, default=3.3e8, help="no generated matrix has more")
    parser.add_argument("--names", nargs="+", help="only these matrices")
    parser.add_argument("--most", type=int, default=1000, help="matrices at most")
    parser.add_argument("--permuted", type=int, metavar="SEED", help="rows and columns in a random order")
    parser.add_argument("--conditioning", choices=get_args(Conditioning), help="what is shown in a matrix's place")
    parser.add_argument("--examples", type=Path, help="adds nats a program")
    parser.add_argument("--more-packs", type=Path, nargs="*", default=[], help="patterns of the examples")
    parser.add_argument(
        "--batch", type=int, default=256, help="sequences at once; a large GPU takes no longer for more"
    )
    options = parser.parse_args()
    is_warm = options.temperature != 1 or options.min_p > 0
    if sum((options.permuted is not None, options.conditioning is not None, is_warm)) > 1:
        parser.error("--permuted, --conditioning and --temperature go alone: each has a result file of its own")
    return options


if __name__ == "__main__":
    main()
