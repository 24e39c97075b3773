"""Matrix encoders compared: short supervised trainings from one language model, an encoder and seed each.

    python -m benchmarks.learning.encoders LANGUAGE_MODEL --tokenizer TOKENIZER.json --examples examples.jsonl.xz --patterns PATTERNS [...]
        [--encoders profiled structural features shuffled blind sinusoidal sinusoidal_1024 min_max raw_indices] [--seconds 45]
        [--samples 4] [--most-workloads 200] [--batch-sequences N] [--device cuda] [--seeds 0] [--work DIR] [--commit C] [--out benchmarks/results]

LANGUAGE_MODEL is what the stage `pretrain` wrote: that of a policy has learned with one of the encoders, and favours it. All have the same
seconds of the training loop, so that one with more soft tokens makes fewer steps; the weights at the end are judged (`sft --checks 1`,
`evaluate`). Prompts are sampled before the clock starts.

The result file, results/DEVICE/encoders.json, is written after every training. The same command goes on where it was stopped: rows of this
commit, device, settings and files are kept, those that failed are made again; rows of others are replaced. On several GPUs it may run beside itself,
each with its own `--encoders` or `--seeds`. Policies, and what each stage said, lie in `--work`.
"""

import argparse
import fcntl
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.origin import RESULTS, command, folder_of, machine, source_commit, write_result
from services.trainer.offline.supervised_commands import inputs_of
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.prompts.arrays import ENCODER_KINDS, NUM_WINDOWS, SINGLE_NONZEROS, EncoderKind

WORK = Path(".sparsesmith/encoders")
SAME = ("device", "commit", "settings", "inputs")
"""What a run has to share with the one before to go on with its rows."""
LEARNED = ("steps", "epochs", "seconds", "train_workloads", "validation_loss")
"""Of the report of `sft`."""
MOST_CHARACTERS = 400
"""Of the last line of what a stage said before it failed."""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Raises SystemExit, after the last training, where one has failed."""
    options = options_of(arguments)
    results = Results(options)
    for seed, encoder in product(options.seeds, options.encoders):
        if not results.knows(encoder, seed):
            results.add({"encoder": encoder, "seed": seed, **compared(encoder, seed, options)})
    if failed := [f"{row['encoder']} {row['seed']}" for row in results.rows if "failed" in row]:
        raise SystemExit(f"failed: {', '.join(failed)}; see {options.work}")


def compared(encoder: EncoderKind, seed: int, options: argparse.Namespace) -> Row:
    """What a training came to and what its samples are worth; or which stage failed, and how."""
    policy: Path = options.work / f"{encoder}-{seed}"
    data = ["--examples", options.examples, "--patterns", *options.patterns, "--device", options.device]
    data += ["--seed", str(seed)]
    start = ["--pretrained", options.language_model, "--tokenizer", options.tokenizer, "--encoder", encoder]
    length = ["--seconds", str(options.seconds), "--checks", "1"]
    if options.batch_sequences:
        length += ["--batch-sequences", str(options.batch_sequences)]
    asked = ["--samples", str(options.samples), "--most-workloads", str(options.most_workloads)]
    try:
        learned = _stage("sft", [*start, *data, *length, "--out", policy], policy.with_suffix(".sft.log"))
        judged = _stage("evaluate", ["--policy", policy, *data, *asked], policy.with_suffix(".evaluate.log"))
    except StageFailed as failure:
        return {"failed": str(failure)}
    nats = {kind: told["program"] for kind, told in learned["nats"].items()}
    return {
        "soft_tokens": soft_tokens(encoder),
        **{name: learned[name] for name in LEARNED},
        "nats_a_program": nats,
        **judged,
    }


def soft_tokens(encoder: EncoderKind) -> int:
    """Of a prompt, before its text."""
    matrix_tokens = SINGLE_NONZEROS[encoder].count if encoder in SINGLE_NONZEROS else NUM_WINDOWS
    return MatrixEncoder(encoder, hidden=2).num_tokens_before_matrix + matrix_tokens


class StageFailed(Exception):
    """A stage ended without a report; says with what, and its last line."""


def _stage(name: str, words: Sequence[Path | str], log: Path) -> Row:
    """The report of an offline stage, in a process of its own. Raises StageFailed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    run = [sys.executable, "-m", "services.trainer.offline", name, *map(str, words)]
    with log.open("w", encoding="utf-8") as said:
        ended = subprocess.run(run, stdout=subprocess.PIPE, stderr=said, text=True, check=False)
    if ended.returncode != 0:
        *_, last = ("", *log.read_text(encoding="utf-8").splitlines())
        raise StageFailed(f"{name} ended with {ended.returncode}: {last[:MOST_CHARACTERS]}")
    report: Row = json.loads(ended.stdout)
    return report


class Results:
    """The result file."""

    def __init__(self, options: argparse.Namespace) -> None:
        """With the rows of a run before that had the same in everything of SAME, but those that failed. Raises SystemExit
        for a language model without weights, FileNotFoundError for another file that is not there."""
        is_cuda = options.device.startswith("cuda")
        name = torch.cuda.get_device_name(options.device) if is_cuda else "CPU"
        weights = sorted(options.language_model.glob("*.safetensors"))
        if not weights:
            raise SystemExit(f"{options.language_model} holds no weights (*.safetensors) of a language model")
        files = [path for path in (options.tokenizer, options.examples, *options.patterns) if not path.is_dir()]
        self.path: Path = options.out / (folder_of(name) if is_cuda else "cpu") / "encoders.json"
        self._head: Row = {
            "kind": "encoders",
            "device": {"kind": "cuda" if is_cuda else "cpu", "name": name},
            "machine": machine(),
            "commit": options.commit or source_commit(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command("benchmarks.learning.encoders"),
            "settings": {
                "language_model": options.language_model.name,
                "patterns": [path.name for path in options.patterns],
                "seconds": options.seconds,
                "samples": options.samples,
                "most_workloads": options.most_workloads,
                "batch_sequences": options.batch_sequences,
            },
            "inputs": inputs_of([*weights, *files]),
        }
        self.rows = [row for row in self._written() if "failed" not in row]

    def _written(self) -> list[Row]:
        if not self.path.is_file():
            return []
        before = json.loads(self.path.read_text(encoding="utf-8"))
        if other := [name for name in SAME if before.get(name) != self._head[name]]:
            print(f"{self.path} is of another run ({', '.join(other)}): it is replaced", file=sys.stderr, flush=True)
            return []
        rows: list[Row] = before["rows"]
        return rows

    def knows(self, encoder: EncoderKind, seed: int) -> bool:
        return (encoder, seed) in map(_key, self.rows)

    def add(self, row: Row) -> None:
        """And write, beside what another run of the same comparison, on another GPU, has added meanwhile."""
        self.rows.append(row)
        own = {*map(_key, self.rows)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(".encoders.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [each for each in self._written() if _key(each) not in own]
            write_result(self.path, {**self._head, "rows": [*others, *self.rows]})
        print(json.dumps(row), flush=True)


def _key(row: Row) -> tuple[EncoderKind, int]:
    return row["encoder"], row["seed"]


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language_model", type=Path, help="folder that the stage `pretrain` wrote")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json that it was pretrained with")
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--encoders", nargs="+", choices=ENCODER_KINDS, default=list(ENCODER_KINDS))
    parser.add_argument("--seconds", type=float, default=45.0, help="of each training loop")
    parser.add_argument("--samples", type=int, default=4, help="of each validation workload")
    parser.add_argument("--most-workloads", type=int, default=200, help="that are sampled for")
    parser.add_argument("--batch-sequences", type=int, help="of a training step; default: that of `sft`")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="all encoders with one, then with the next")
    parser.add_argument("--work", type=Path, default=WORK, help="folder of policies and logs")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
