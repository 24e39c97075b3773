"""A cost model for a GPU of another kind: measures a set of matrices there and trains on what it measured.

    sparsesmith calibrate [--out models/cost-NAME] [--seconds 1500]
    python -m benchmarks.tuning.calibrate ...                           the same

Kernels are found on any GPU without: searches then rank by estimates that know an H200. Matrices are made here, half of
the programs are likely winners, half chosen from all prospects. The records are written after every workload; the same command
again goes on where it stopped, and begins nothing after `--seconds`. A few matrices are held out, for the model's card alone.
Then `SPARSESMITH_GENERATOR_COST_MODEL_DIR` names the folder.
"""

import argparse
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.matrices.calibration import KINDS, Made, calibration_set
from benchmarks.measure.measured import MatrixEntry, read_records
from benchmarks.origin import ROOT
from benchmarks.tuning.sweep import DEFAULT_PLANS, Choice, Plan, measured_records, parse_plan, proposals_of
from benchmarks.tuning.train_cost import Origin, fold_of, train_cost_model
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pack import encode_pattern, pack_index, read_pack, write_pack

SIZES = (1e4, 1e5, 1e6, 1e7)
RANDOM_SHARE = 0.5
HELD_OUT_FOLD = 0
PATTERNS, RECORDS = "patterns.pack", "records.jsonl"
CALIBRATED = Origin("benchmarks/matrices/calibration.py, made there", ("sparsesmith calibrate",))
LEAST_TRAINED_ON = 2
"""Matrices."""


def main() -> None:
    options = _options()
    made = calibration_set(options.nnz, options.kinds)
    settings = EvaluatorSettings()
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 1), timeout_s=settings.compile_limit_s) as compiler,
    ):
        found = process.start()
        device = options.device or found.name
        folder = options.out or ROOT / "models" / f"cost-{_slug(device)}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORDS).touch()
        _make(made, folder / PATTERNS)
        todo = wanting(made, [parse_plan(plan) for plan in options.plan], folder / RECORDS)
        print(f"{device}: {len(todo)} workloads to measure, into {folder}", flush=True)
        outcomes, failures = Counter[str](), list[dict[str, str]]()
        deadline = time.monotonic() + options.seconds
        for number, (name, plan) in enumerate(todo):
            if time.monotonic() > deadline:
                print(f"time is up: {len(todo) - number} workloads are left for the next run", flush=True)
                break
            proposals = proposals_of(name, dict(read_pack(folder / PATTERNS, [name]))[name], plan, Choice(RANDOM_SHARE))
            records = [*measured_records(proposals, process, compiler, settings, outcomes, failures)]
            with (folder / RECORDS).open("a", encoding="utf-8") as lines:
                lines.writelines(json.dumps(record) + "\n" for record in records)
            print(f"{name} {_workload(plan)}: {len(records)} of {len(proposals.instances)} passed", flush=True)
    print(dict(outcomes), flush=True)
    entries = entries_of(made, folder / PATTERNS)
    trained_on = {record["pattern"] for record in read_records([folder / RECORDS])} & _training(entries)
    if len(trained_on) < LEAST_TRAINED_ON:
        raise SystemExit(
            f"{len(trained_on)} matrices to train on were measured, at least {LEAST_TRAINED_ON} are needed: --seconds "
            f"{options.seconds:g} is too little time, or --nnz and --kinds name too few"
        )
    print(train_cost_model(device, [folder / RECORDS], [folder / PATTERNS], folder, entries, CALIBRATED))


def entries_of(made: Sequence[Made], pack: Path) -> dict[str, MatrixEntry]:
    """The matrices by name, one fold of them held out where enough are left to train on."""
    sizes = {name: pattern.nnz for name, pattern in read_pack(pack, [each.name for each in made])}
    held_out = {each.name for each in made if fold_of(each.name) == HELD_OUT_FOLD}
    if len(made) - len(held_out) < LEAST_TRAINED_ON:
        held_out = set()
    return {
        each.name: MatrixEntry(
            each.name, each.kind, "validation" if each.name in held_out else "train", sizes[each.name]
        )
        for each in made
    }


def _training(entries: dict[str, MatrixEntry]) -> set[str]:
    return {name for name, entry in entries.items() if entry.split == "train"}


def _make(made: Iterable[Made], pack: Path) -> None:
    """All matrices in one pack, which an earlier run may have left."""
    wanted = {each.name: each for each in made}
    if not pack.exists() or not wanted.keys() <= pack_index(pack).keys():
        write_pack(pack, {name: encode_pattern(each.make()) for name, each in wanted.items()})


def wanting(made: Sequence[Made], plans: Sequence[Plan], records: Path) -> list[tuple[str, Plan]]:
    """Workloads that no record is of, plan by plan, small matrices first."""
    known = {
        (each["pattern"], each["operation"], each["element_type"], each["num_dense_cols"])
        for each in read_records([records])
    }
    work = [(each.name, plan) for plan in plans for each in made]
    return [
        (name, plan)
        for name, plan in work
        if (name, plan.operation, plan.element_type, plan.num_dense_cols) not in known
    ]


def _workload(plan: Plan) -> str:
    return f"{plan.operation} {plan.element_type} {plan.num_dense_cols}"


def _slug(device: str) -> str:
    """Of a device's name, for a folder."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia ")).strip("-")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the model; else models/cost-NAME, by the device's name")
    parser.add_argument("--seconds", type=float, default=1500, help="no workload is begun after this time")
    parser.add_argument("--nnz", type=float, nargs="+", default=SIZES, help="sizes of the matrices")
    parser.add_argument("--kinds", nargs="+", default=tuple(KINDS), choices=tuple(KINDS), metavar="KIND")
    parser.add_argument("--plan", nargs="+", default=DEFAULT_PLANS, help="operation:type:columns:programs")
    parser.add_argument("--device", default="", help="what the model is for; else what the device calls itself")
    return parser.parse_args()


if __name__ == "__main__":
    main()
