"""The same online updates by one process and by several, a GPU each: what they take, and that they come to the same weights.

    python -m benchmarks.learning.trainer_ranks [--processes 1 2] [--micro-batch-tokens 2048 16384] [--records 256] [--updates 5] [--device cuda]

Programs are those of `benchmarks.learning.trainer_update`, several times over; the same batch is learned from in each update, under the
settings that a trainer begins with but for the trust region, which would end some of them early. Each number of processes is a run of
torchrun of its own; its first update, in which the others are told the whole state and kernels are loaded, is left out of the median.
How far two runs are apart is told beside how far the policy has moved: sums of the gradient's parts are rounded in another order, and a
GPU's arithmetic is bfloat16. Each size of micro-batches is a run of its own, too: larger ones are fewer kernels, and more memory.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.learning.trainer_update import make_batch
from benchmarks.origin import RESULTS, ROOT, command, folder_of, machine, source_commit, write_result
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.learner import Learner
from services.trainer.online.ranks import ranks
from services.trainer.opened_policy import load_networks

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    if options.rank_writes:
        _updates(options)
        return
    with tempfile.TemporaryDirectory(prefix="ss-ranks-") as folder:
        ways = product(options.micro_batch_tokens, options.processes)
        runs = [_run(count, tokens, Path(folder), options) for tokens, count in ways]
    alone, is_cuda = runs[0], options.device == "cuda"
    device = torch.cuda.get_device_name() if is_cuda else "CPU"
    result = {
        "kind": "trainer_ranks",
        "device": {"kind": "cuda" if is_cuda else "cpu", "name": device},
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.learning.trainer_ranks"),
        "torch": torch.__version__,
        "policy": options.policy.name,
        "records": options.records,
        "updates": options.updates,
        "runs": [{**run["told"], **_apart(run, alone)} for run in runs],
    }
    path = options.out / (folder_of(device) if is_cuda else "cpu") / "trainer-ranks.json"
    write_result(path, result)
    print(json.dumps(result, indent=1))


def _run(count: int, micro_batch_tokens: int, folder: Path, options: argparse.Namespace) -> Json:
    """What the first of so many processes wrote. Raises CalledProcessError."""
    written = folder / f"{count}-{micro_batch_tokens}.pt"
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run += ["--local-addr", "127.0.0.1", "--nproc-per-node", str(count)]
    run += ["-m", "benchmarks.learning.trainer_ranks", "--rank-writes", str(written), "--device", options.device]
    run += ["--policy", str(options.policy.resolve()), "--records", str(options.records)]
    run += ["--micro-batch-tokens", str(micro_batch_tokens)]
    run += ["--updates", str(options.updates), "--threads", str(options.threads)]
    subprocess.run(run, check=True, cwd=ROOT)
    told: Json = torch.load(written, weights_only=False)
    return told


def _updates(options: argparse.Namespace) -> None:
    """In one of torchrun's processes; the first writes what came of it."""
    torch.set_num_threads(options.threads)
    own = ranks(options.device)
    (most,) = options.micro_batch_tokens
    made = LearnerOptions(program_kl_limit=100.0, micro_batch_tokens=most)
    learner = Learner(load_networks(options.policy), made, device=own.device, ranks=own)
    if not own.leads:
        learner.follow()
        return
    batch = make_batch(options.policy, options.records)
    before = {name: each.detach().cpu().clone() for name, each in learner.networks.named_parameters()}
    seconds = []
    for _ in range(options.updates):
        began = time.monotonic()
        metrics = learner.update(batch)
        seconds.append(round(time.monotonic() - began, 3))
    learner.dismiss()
    told = {
        "processes": own.count,
        "micro_batch_tokens": most,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else None,
        "tokens": int(batch.text.sampled_mask_BT.sum()),
        "update_s": seconds,
        "median_s": statistics.median(seconds[1:] or seconds),
        "steps": metrics["steps"],
        "program_kl_reference": metrics["program_kl_reference"],
    }
    after = {name: each.detach().cpu() for name, each in learner.networks.named_parameters()}
    torch.save({"told": told, "before": before, "after": after}, options.rank_writes)


def _apart(run: Json, alone: Json) -> Json:
    """Lengths over all weights: of what the updates moved, and of the difference from the first run."""
    moved = [run["after"][name] - run["before"][name] for name in run["after"]]
    apart = [run["after"][name] - alone["after"][name] for name in run["after"]]
    return {
        "over_the_first": round(alone["told"]["median_s"] / run["told"]["median_s"], 3),
        "moved": _length(moved),
        "apart_from_the_first": _length(apart),
    }


def _length(tensors: Sequence[torch.Tensor]) -> float:
    return float(torch.sqrt(sum((each.double() ** 2).sum() for each in tensors)))  # type: ignore[arg-type]


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="others are held against the first")
    usual = [LearnerOptions().micro_batch_tokens]
    parser.add_argument("--micro-batch-tokens", type=int, nargs="+", default=usual, help="prompt and padding included")
    parser.add_argument("--records", type=int, default=256, help="of a batch; a course's has 256, a trainer's own 512")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--policy", type=Path, default=ROOT / "models" / "sparsesmith-28m")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU, a process")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rank-writes", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
