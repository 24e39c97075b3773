"""Trains the cost model of a device on records of sweeps, and says how well it ranks what it never saw.

    python -m benchmarks.tuning.train_cost RECORDS.jsonl.xz ... --pack PATTERNS.pack [--out models/cost-h200]

Fitted on matrices of the train side of benchmarks/split.csv alone. Its doubt is fitted on errors across folds of whole
matrices of that side; the table of the model card is of the validation side, which chooses nothing.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from benchmarks.measure.measured import MatrixEntry, Measured, matrix_entries, read_measured, read_records
from benchmarks.origin import ROOT
from benchmarks.tuning.strategy_worth import best_times, never_fastest, seldom_measured
from sparsesmith.tuning.boosted import (
    NUM_ROUNDS,
    PARAMETERS,
    BoostedCost,
    Description,
    Table,
    described,
    predicted,
    train,
)
from sparsesmith.tuning.columns import all_words
from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.doubt import Errors, fitted_doubt
from sparsesmith.tuning.grid import FloatArray

DEFAULT_OUT = ROOT / "models" / "cost-h200"
NUM_FOLDS = 4
MAX_DOUBT_WORKLOADS = 250
MAX_DOUBT_PROGRAMS = 60
CONTENDER_LOG = np.log(1.5)
"""Errors are judged among programs within 1.5x of the best: the others are not where the search happens."""
PLACES = (1, 2, 4, 8, 16)

Ranking = Callable[[Measured], FloatArray]


@dataclass(frozen=True)
class Origin:
    """What a model's card says of where its records come from."""

    matrices: str
    """Those that it was fitted on."""
    commands: tuple[str, ...]
    """Which make it again."""


OF_THE_SPLIT = Origin(
    "the train side of benchmarks/split.csv",
    (
        "python -m benchmarks.tuning.sweep PATTERNS.pack RECORDS.jsonl.xz --random 0.5",
        "python -m benchmarks.tuning.train_cost RECORDS.jsonl.xz --pack PATTERNS.pack --out models/cost-h200",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument(
        "--pack", type=Path, nargs="+", required=True, help="pack of the patterns (benchmarks.matrices.matrix_pack)"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--device", default="NVIDIA H200", help="as the evaluator names it")
    options = parser.parse_args()
    card = train_cost_model(options.device, options.records, options.pack, options.out, matrix_entries())
    print(card)


def train_cost_model(
    device: str,
    records: Sequence[Path],
    packs: Sequence[Path],
    out: Path,
    entries: Mapping[str, MatrixEntry],
    origin: Origin = OF_THE_SPLIT,
) -> str:
    """Fits, writes the folder of the model and gives its card."""
    words = all_words()
    measured = read_measured(records, packs, words, entries=entries)
    training = [each for each in measured if each.matrix.split == "train"]
    held_out = [each for each in measured if each.matrix.split == "validation"]
    names = sorted({name for each in training for name in each.columns})
    print(f"{len(training)} training workloads, {len(held_out)} for validation, {len(names)} columns", flush=True)
    doubt = fitted_doubt(_errors(training, names))
    print(f"doubt {described(doubt)}", flush=True)
    booster = train([_table(each) for each in training], names)
    best = best_times(read_records(records), "train", entries)
    description = Description(
        device=device,
        columns=names,
        words=words,
        doubt=described(doubt),
        num_programs=sum(len(each.times_us) for each in training),
        num_workloads=len(training),
        num_patterns=len({each.matrix.name for each in training}),
        left_out=never_fastest(best),
        seldom_seen=seldom_measured(best),
        sources=[path.name for path in records],
    )
    BoostedCost(booster, description).save(out)
    learned = _regret_table(held_out, lambda each: predicted(booster, names, each.columns))
    analytic = _regret_table(held_out, lambda each: each.columns["log_estimate"])
    card = model_card(description, doubt, {"learned": learned, "analytic": analytic}, len(held_out), origin)
    (out / "README.md").write_text(card, encoding="utf-8")
    return card


def regrets(measured: Sequence[Measured], ranking: Ranking) -> dict[str, list[float]]:
    """By workload kind: how much slower than the best the best of the first places is, as geometric means."""
    logs: dict[str, list[list[float]]] = defaultdict(list)
    for each in measured:
        times = np.log(each.times_us[np.argsort(ranking(each), kind="stable")])
        lost = [float(times[:place].min() - times.min()) for place in PLACES]
        logs[each.workload].append(lost)
        logs["all"].append(lost)
    return {kind: [float(np.expm1(mean)) for mean in np.mean(rows, axis=0)] for kind, rows in sorted(logs.items())}


def fold_of(name: str) -> int:
    """A matrix's fold; its siblings of the split may be in another."""
    return blake2b(name.encode(), digest_size=4).digest()[0] % NUM_FOLDS


def _errors(training: Sequence[Measured], names: list[str]) -> list[Errors]:
    """Of models that did not see the matrix."""
    errors = []
    for fold in range(NUM_FOLDS):
        others = [_table(each) for each in training if fold_of(each.matrix.name) != fold]
        if not others:
            continue
        booster = train(others, names)
        for each in training:
            if fold_of(each.matrix.name) == fold:
                errors.append(_error(each, predicted(booster, names, each.columns)))
    rng = random.Random(1)
    rng.shuffle(errors)
    return [each for each in errors if len(each.values) > 3][:MAX_DOUBT_WORKLOADS]


def _error(each: Measured, log_costs: FloatArray) -> Errors:
    times = np.log(each.times_us)
    near = np.flatnonzero(times < times.min() + CONTENDER_LOG)[:MAX_DOUBT_PROGRAMS]
    return Errors(each.grid.family_numbers()[near], each.grid.coordinates()[near], (times - log_costs)[near])


def _table(each: Measured) -> Table:
    return Table(each.columns, np.log(each.times_us))


def _regret_table(measured: Sequence[Measured], ranking: Ranking) -> dict[str, list[float]]:
    return regrets(measured, ranking) if measured else {}


def model_card(
    description: Description,
    doubt: Doubt,
    tables: Mapping[str, Mapping[str, list[float]]],
    num_held_out: int,
    origin: Origin,
) -> str:
    """Data, command and metrics."""
    lines = [
        f"# Model card: cost model of {description.device}",
        "",
        f"Gradient-boosted trees (LightGBM, {NUM_ROUNDS} rounds, {PARAMETERS['num_leaves']} leaves) that rank the prospects of",
        "the kernel families for a matrix: input is the pattern's structural features, the workload, the family, its",
        "parameters and the analytic estimate; output is the logarithm of the expected time. Apache-2.0. `docs/tuning.md` says",
        "how it is used.",
        "",
        f"**Data**: {description.num_programs} programs of {description.num_workloads} workloads on {description.num_patterns} matrices",
        f"of {origin.matrices}, measured on one {description.device} by `benchmarks.tuning.sweep`",
        f"({', '.join(description.sources)}).",
        "",
        f"**Left out of the search** (fastest of no training workload): {', '.join(description.left_out) or 'none'}.",
        "",
        f"**Hardly known** (measured on few training workloads, tried all the same): {', '.join(description.seldom_seen) or 'none'}.",
        "",
        f"**Held out**: {num_held_out} workloads of the validation side. How much slower than the best of all measured programs of",
        "a workload the best of the first k is when they are taken in the model's order, in per cent (geometric mean):",
        "",
        "| workload | order | " + " | ".join(f"k={place}" for place in PLACES) + " |",
        "|---|---|" + "---|" * len(PLACES),
    ]
    for kind in tables["learned"]:
        for order in ("learned", "analytic"):
            lines.append(
                f"| {kind} | {order} | " + " | ".join(f"{100 * value:.2f}" for value in tables[order][kind]) + " |"
            )
    parts = ", ".join(f"{name} {value:.3f}" for name, value in described(doubt).items())
    return "\n".join(
        [
            *lines,
            "",
            f"**Doubt** (standard deviations of the log error, fitted across {NUM_FOLDS} folds of the training matrices): {parts}.",
            "",
            "**Limits**: one device; families and parameters that the records do not hold are ranked by the analytic estimate",
            "alone; matrices far from those that it saw are ranked less well, which the measurements of a search correct.",
            "",
            "**Reproduce**:",
            "",
            *(f"    {command}" for command in origin.commands),
            "",
        ]
    )


if __name__ == "__main__":
    main()
