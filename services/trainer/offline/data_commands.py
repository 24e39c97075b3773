"""The stages that turn records into what is learned from, from a shell; see `services.trainer.offline`. No GPU."""

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from services.trainer.offline.example_file import write_examples
from services.trainer.offline.faults import broken
from services.trainer.offline.harvests import Harvested
from services.trainer.offline.records import NUM_SMS, NUMBERS, Record, Rendering, read_records
from services.trainer.offline.sides import SIDES, Patterns, side_of, sides_in
from services.trainer.offline.targets import (
    MeasuredProgram,
    Repair,
    TargetRule,
    WorkloadTargets,
    targets_of,
    workload_targets,
)
from services.trainer.offline.text_files import open_text
from sparsesmith.program.facts import Circumstances
from sparsesmith.prompts.refinement import failure_report

Thing = TypeVar("Thing")


def add_programs(parser: argparse.ArgumentParser) -> None:
    """Options of the stage that writes programs out, for the tokenizer to learn from and to pretrain on."""
    _add_records(parser)
    parser.add_argument("--side", choices=SIDES, default="train")
    parser.add_argument("--most", type=int, default=4000, help="programs at most, families in equal parts")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines with `program` and `family`")
    parser.set_defaults(run=_run_programs)


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Options of the stage that writes examples: programs to write, to improve and to repair."""
    _add_records(parser)
    parser.add_argument(
        "--harvest", type=Path, nargs="*", default=[], help="packed harvests (benchmarks.tuning.harvest pack)"
    )
    parser.add_argument("--faults", type=int, default=4, help="of a workload: programs broken on purpose, to repair")
    parser.add_argument("--most-programs", type=int, default=10_000, help="of a workload, evenly chosen by time")
    parser.add_argument("--out", type=Path, required=True, help=".jsonl or .jsonl.xz")
    parser.set_defaults(run=_run_examples)


def _add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="JSON lines of measured programs")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--split", type=Path, help="CSV with columns name, split; default: a quarter by name")
    parser.add_argument(
        "--numbers",
        choices=NUMBERS,
        default="open",
        help="what follows from a matrix: as a number, or by name",
    )


def _run_programs(options: argparse.Namespace) -> dict[str, object]:
    sides = sides_in(options.split)
    by_family: dict[str, dict[str, None]] = defaultdict(dict)
    reading = Reading(options)
    for record in reading.records():
        if side_of(record["pattern"], sides) == options.side:
            by_family[record.get("family", "")].setdefault(record["program"])
    chosen = in_equal_parts({family: list(programs) for family, programs in by_family.items()}, options.most)
    with open_text(options.out, "w") as lines:
        for family, program in chosen:
            lines.write(json.dumps({"family": family, "program": program}) + "\n")
    return {"programs": len(chosen), "families": Counter(family for family, _ in chosen)}


def in_equal_parts(programs: Mapping[str, Sequence[str]], most: int) -> list[tuple[str, str]]:
    """At most `most` programs with their families, chosen evenly; a family that has few leaves its part to others."""
    chance, chosen = random.Random(0), list[tuple[str, str]]()
    for left, (family, texts) in zip(
        range(len(programs), 0, -1), sorted(programs.items(), key=lambda pair: len(pair[1])), strict=True
    ):
        part = min(len(texts), (most - len(chosen)) // left)
        chosen += [(family, text) for text in chance.sample(texts, part)]
    chance.shuffle(chosen)
    return chosen


class Reading:
    """Records of files as their options say, with what had to be left out."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.patterns = Patterns(options.patterns)
        self._paths: list[Path] = options.records
        self.rendering = Rendering(options.numbers, self.patterns.named)
        self.left_out: Counter[str] = self.rendering.left_out

    def records(self) -> Iterator[Record]:
        """With their programs; at the end what was left out is told."""
        yield from self.rendering(self._of_known_patterns())
        for reason, count in self.left_out.most_common():
            print(f"{count} records are left out: {reason}", file=sys.stderr)
        for family, count in self.rendering.kept_plain.most_common():
            print(f"{count} programs of {family} keep their numbers: the facts give others today", file=sys.stderr)

    def knows(self, record: Record) -> bool:
        """Whether its matrix is there."""
        return record.get("pattern") is not None and self.patterns.find(record["pattern"]) is not None

    def _of_known_patterns(self) -> Iterator[Record]:
        for path in self._paths:
            for record in read_records(path):
                if self.knows(record):
                    yield record
                else:
                    self.left_out[f"no pattern {record.get('pattern')}"] += 1


def _run_examples(options: argparse.Namespace) -> dict[str, object]:
    reading, sides = Reading(options), sides_in(options.split)
    harvested = Harvested(reading.rendering)
    known = {each.key: each for each in workload_targets(reading.records(), TargetRule())}
    for path in options.harvest:
        harvested.add(each for each in read_records(path) if reading.knows(each))
    workloads = [
        _completed(known.get(key) or WorkloadTargets(key, None, (), ()), harvested, reading.patterns, options)
        for key in dict.fromkeys([*known, *harvested.measured])
        if reading.patterns.find(key.pattern) is not None
    ]
    sided = [(side, each) for each in workloads if (side := side_of(each.key.pattern, sides)) in SIDES]
    left_out = dict((reading.left_out + harvested.left_out).most_common())
    files = [path.name for path in (*options.records, *options.harvest)]
    head = {"files": files, "numbers": options.numbers, "left_out": left_out, "harvest_pairs": dict(harvested.pairs)}
    write_examples(options.out, head, sided)
    return {
        **{side: _counts([each for own, each in sided if own == side]) for side in SIDES},
        "left_out": left_out,
        "harvest_pairs": dict(harvested.pairs),
        "bytes": options.out.stat().st_size,
    }


def _completed(
    workload: WorkloadTargets, harvested: Harvested, patterns: Patterns, options: argparse.Namespace
) -> WorkloadTargets:
    """With what a harvest knows of it, and with faults to repair."""
    key, rule = workload.key, TargetRule()
    fastest: dict[str, MeasuredProgram] = {}
    for each in sorted([*workload.measured, *harvested.measured[key]], key=lambda each: each.median_us):
        fastest.setdefault(each.program, each)
    kept = tuple(_evenly(list(fastest.values()), options.most_programs))
    complete = replace(
        workload,
        best_baseline_us=harvested.baselines_us.get(key, workload.best_baseline_us),
        measured=kept,
        targets=targets_of(kept, rule),
        improvements=tuple(harvested.improvements[key]),
    )
    return replace(complete, repairs=(*harvested.repairs[key], *_faults(complete, patterns, options.faults)))


def _evenly(ordered: Sequence[Thing], most: int) -> list[Thing]:
    """At most `most`: the first ones up to half of that, the others evenly chosen."""
    if len(ordered) <= most:
        return list(ordered)
    first, others = ordered[: most // 2], ordered[most // 2 :]
    step = len(others) / (most - len(first))
    return [*first, *(others[int(number * step)] for number in range(most - len(first)))]


def _faults(workload: WorkloadTargets, patterns: Patterns, most: int) -> Iterator[Repair]:
    key = workload.key
    circumstances = Circumstances(patterns.named(key.pattern), key.num_dense_cols, NUM_SMS)
    for number in range(most):
        chance = random.Random(f"{key} {number}")
        working = workload.targets[number % len(workload.targets)].program
        found = broken(working, key.operation, key.element_type, circumstances, chance)
        if found is not None:
            yield Repair(found[0], failure_report("rejected", found[1]), working)


def _counts(workloads: Sequence[WorkloadTargets]) -> dict[str, int]:
    return {
        "workloads": len(workloads),
        "matrices": len({each.key.pattern for each in workloads}),
        "programs": sum(len(each.measured) for each in workloads),
        "improvements": sum(len(each.improvements) for each in workloads),
        "repairs": sum(len(each.repairs) for each in workloads),
    }
