"""Programs that a policy writes for the core development matrices: one JSON line a workload.

python -m benchmarks.learning.sample_policy PACK OUT.jsonl [--policy models/sparsesmith-28m] [--samples 16]
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.matrices.suites import Matrix, core_matrices
from services.trainer.offline.judging import SamplingSettings, sample_programs
from services.trainer.offline.prompt_pool import Device, asked_for, build_pool
from services.trainer.policy_model import PolicyNetworks
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.policy.checkpoint import load_policy
from sparsesmith_proto.message import ElementType, Operation

WORKLOADS: tuple[tuple[Operation, ElementType, int], ...] = (
    ("spmv", "float32", 1),
    ("spmv", "float64", 1),
    ("spmm", "float32", 32),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--only", help="only the matrices of this side of the split")
    parser.add_argument("--most", type=int, default=1000, help="matrices at most")
    parser.add_argument(
        "--batch", type=int, default=256, help="sequences at once; a large GPU takes no longer for more"
    )
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrices = [each for each in core_matrices(options.pack) if options.only in (None, each.split)][: options.most]
    policy = load_policy(options.policy)
    networks = PolicyNetworks(policy.model, policy.encoder).to(device)
    tokenizer = load_tokenizer(options.policy / "tokenizer.json")
    pool = build_pool(
        {each.name: each.pattern for each in matrices},
        policy.encoder.kind,
        options.samples,
        device,
        os.cpu_count() or 1,
    )
    settings = SamplingSettings(samples=options.samples, device=device, batch_sequences=options.batch)
    asked = [(each, workload) for each in matrices for workload in WORKLOADS for _ in range(options.samples)]
    generator, began, programs = np.random.default_rng(0), time.monotonic(), list[str]()
    torch.manual_seed(0)
    for start in range(0, len(asked), settings.batch_sequences):
        part = asked[start : start + settings.batch_sequences]
        asked_of = [asked_for(*workload, Device(settings.architecture)) for _, workload in part]
        prompts = pool.batch([each.name for each, _ in part], asked_of, generator)
        programs += [text for text, _, _ in sample_programs(networks, prompts, tokenizer, settings)]
    print(f"{len(programs)} samples in {time.monotonic() - began:.0f} s on {device}")
    with options.out.open("w", encoding="utf-8") as out:
        for index in range(0, len(asked), options.samples):
            line = _line(*asked[index], programs[index : index + options.samples])
            out.write(json.dumps({"policy": policy.description.name, **line}) + "\n")


def _line(matrix: Matrix, workload: tuple[str, str, int], programs: list[str]) -> dict[str, object]:
    operation, element_type, num_dense_cols = workload
    return {
        "pattern": matrix.name,
        "operation": operation,
        "element_type": element_type,
        "num_dense_cols": num_dense_cols,
        "programs": programs,
    }


if __name__ == "__main__":
    main()
