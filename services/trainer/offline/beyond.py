"""Programs beyond the grid to learn to write: measured ones with a change that costs nothing as a rule, and wins at times.

What a change is worth is what harvests on train-side matrices say (`benchmarks.tuning.harvest`): of each deed on the
programs of a family the typical gain, and how often it won. Deeds that typically cost something, that were hardly tried,
or that a compiler undoes are not learned.
"""

import argparse
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from services.trainer.offline.data_commands import Reading, add_records
from services.trainer.offline.example_file import write_examples
from services.trainer.offline.harvests import is_time
from services.trainer.offline.named_edits import named_child
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.records import Record, Rendering, read_records
from services.trainer.offline.sides import side_of, sides_in
from services.trainer.offline.targets import MeasuredProgram, TargetRule, WorkloadTargets, key_of, targets_of
from sparsesmith.errors import InvalidInput
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.mutation import Subject, subject_of
from sparsesmith.mutation.catalogue import SEPARATOR, Mutant, mutants
from sparsesmith.mutation.worth import GAIN


@dataclass(frozen=True)
class BeyondRule:
    """Which changes, and how many."""

    parents: int = 3
    """Of a workload: its fastest programs of different families."""
    changes: int = 6
    """Of a parent, each by another deed."""
    least_tries: int = 6
    """Of a deed on programs of a family."""
    least_gain: float = 0.995
    """Median of a deed's gains."""
    doubt: float = 5.0
    """Tries at the mean rate of winning that every deed is credited with."""


@dataclass(frozen=True)
class Deed:
    """What harvests say of one change on the programs of one family."""

    gain: float
    """Median: the parent's time over the child's."""
    worth: float
    """Expected share that wins."""


Deeds = Mapping[str, Deed]
"""By what was done: `hints: x ldcg`."""


def add_beyond(parser: argparse.ArgumentParser) -> None:
    """Options of the stage. Needs no GPU; about a second a workload on one core."""
    add_records(parser)
    parser.add_argument("--harvest", type=Path, nargs="+", required=True, help="packed harvests, whose deeds are counted")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, required=True, help=".jsonl or .jsonl.xz, examples of the train side")
    add_fields(parser, BeyondRule())
    parser.set_defaults(run=_run_beyond)


def _run_beyond(options: argparse.Namespace) -> dict[str, object]:
    rule, reading, sides = fields_from(BeyondRule, options), Reading(options), sides_in(options.split)
    deeds = deeds_by_family(line for path in options.harvest for line in read_records(path))
    chosen = {family: learned for family, known in deeds.items() if (learned := worth_learning(known, rule))}
    by_workload = defaultdict(list)
    for record in reading.records():
        if side_of(record["pattern"], sides) == "train" and record.get("family") in chosen:
            by_workload[key_of(record)].append(record)
    jobs = [
        (fastest_of_families(records, rule.parents), reading.patterns.named(key.pattern), chosen, rule)
        for key, records in by_workload.items()
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        found = list(pool.map(changed_workload, *zip(*jobs, strict=True), chunksize=4)) if jobs else []
    workloads = [workload for workload, _ in found if workload is not None]
    head = {
        "harvests": [path.name for path in options.harvest],
        "deeds": {family: len(known) for family, known in chosen.items()},
    }
    write_examples(options.out, head, (("train", each) for each in workloads))
    outcomes = sum((outcome for _, outcome in found), Counter[str]())
    return {**head, "workloads": len(workloads), "outcomes": dict(outcomes)}


def deeds_by_family(lines: Iterable[Record]) -> dict[str, dict[str, list[Record]]]:
    """Single changes that were timed beside their parents, by the parent's family and what was done."""
    families: dict[tuple[object, int], str] = {}
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        match line.get("kind"):
            case "parent":
                families[key_of(line), line["number"]] = line.get("family", "")
            case "mutant" if SEPARATOR not in line["deed"] and is_time(line.get("gain")):
                found[families.get((key_of(line), line["parent"]), "")][line["deed"]].append(line)
            case _:
                pass
    return found


def worth_learning(known: Mapping[str, Sequence[Record]], rule: BeyondRule) -> dict[str, Deed]:
    """Of one family's deeds those that the rule lets pass."""
    tried = sum(len(lines) for lines in known.values())
    mean = sum(_won(lines) for lines in known.values()) / max(tried, 1)
    found = {}
    for deed, lines in known.items():
        gain = median(line["gain"] for line in lines)
        undone = sum(line.get("other_code") is False for line in lines)
        if len(lines) >= rule.least_tries and gain >= rule.least_gain and 2 * undone < len(lines):
            found[deed] = Deed(gain, (_won(lines) + rule.doubt * mean) / (len(lines) + rule.doubt))
    return found


def _won(lines: Iterable[Record]) -> int:
    return sum(line["gain"] >= GAIN for line in lines)


def fastest_of_families(records: Iterable[Record], most: int) -> list[Record]:
    """The fastest of each family, the fastest first, of those that are not far behind the first."""
    fastest: dict[str, Record] = {}
    for record in sorted(records, key=lambda each: float(each["median_us"])):
        fastest.setdefault(record["family"], record)
    first = min(float(each["median_us"]) for each in fastest.values())
    near = [each for each in fastest.values() if float(each["median_us"]) <= first * TargetRule.slowest]
    return near[:most]


def changed_workload(
    parents: Sequence[Record], pattern: Pattern, chosen: Mapping[str, Deeds], rule: BeyondRule
) -> tuple[WorkloadTargets | None, Counter[str]]:
    """Of one workload's programs those with a change, at times that are expected of them; None where there are none.
    Also what became of the changes."""
    rendering, outcomes = Rendering("open", lambda _: pattern), Counter[str]()
    found: dict[str, MeasuredProgram] = {}
    for parent in parents:
        for mutant, deed in _changes(parent, pattern, chosen[parent["family"]], rule.changes):
            child = _named(parent, mutant.text, rendering)
            outcomes["not named" if child is None else "learned"] += 1
            if child is not None:
                time_us = float(parent["median_us"]) / deed.gain
                plain = "" if child == mutant.text else mutant.text
                found.setdefault(child, MeasuredProgram(child, parent["family"], time_us, plain))
    measured = tuple(sorted(found.values(), key=lambda each: each.median_us))
    if not measured:
        return None, outcomes
    targets = targets_of(measured, TargetRule())
    return WorkloadTargets(key_of(parents[0]), None, measured, targets, is_expected=True), outcomes


def _changes(parent: Record, pattern: Pattern, deeds: Deeds, most: int) -> Iterator[tuple[Mutant, Deed]]:
    """Each by another deed, those of more worth more often."""
    subject, left = _subject(parent, pattern), most
    if subject is None:
        return
    chance = Random(f"{key_of(parent)} {parent['family']}")
    keys = {deed: math.log(chance.random()) / known.worth if known.worth else -math.inf for deed, known in deeds.items()}
    for deed in sorted(keys, key=keys.__getitem__, reverse=True):
        mutant = next(mutants(subject, deed.partition(":")[0], deed), None) if left else None
        if mutant is not None:
            left -= 1
            yield mutant, deeds[deed]


def _subject(parent: Record, pattern: Pattern) -> Subject | None:
    """None where the text is not what the family writes today."""
    kind = parent["element_type"], int(parent.get("num_dense_cols", 1))
    family = FAMILIES[parent["family"]]
    if "parameters" not in parent or not family.accepts(parent["parameters"], *kind):
        return None
    instance = family.instance(parent["parameters"], *kind)
    if instance.program != parent["plain"]:
        return None
    try:
        return subject_of(parent["plain"], pattern, parent["operation"], *kind, instance)
    except InvalidInput:
        return None


def _named(parent: Record, child: str, rendering: Rendering) -> str | None:
    """With the parent's names; None where the change does not fit them."""
    if parent["program"] == parent["plain"]:
        return child
    return named_child(
        parent["program"], parent["plain"], child, lambda text: rendering.comes_to(text, child, parent)
    )
