"""What a harvest tries of a parent, and how its report tells chance from choice."""

import json
import lzma
from pathlib import Path

from benchmarks.tuning.harvest import Parent, children_of
from benchmarks.tuning.harvested import LIKELY, report
from benchmarks.tuning.mutator_worth import read
from sparsesmith.mutation.likely import likely_mutants
from tests.mutation.programs import instance_subject

DEVICE = {
    "kind": "cuda",
    "name": "NVIDIA H200",
    "architecture": "sm_90",
    "num_sms": 132,
    "copy_bandwidth_gbs": 4000.0,
    "versions": {},
}
WORKLOAD = {"operation": "spmv", "element_type": "float32", "num_dense_cols": 1}


def packed(path: Path, pattern: str, *gains: tuple[str, float, dict[str, str]]) -> Path:
    named = {"pattern": pattern, **WORKLOAD}
    lines = [
        {"kind": "harvest", "device": DEVICE, "commit": path.stem},
        {"kind": "parent", **named, "number": 0, "tuned_us": 2.0},
        *(
            {"kind": "mutant", **named, "parent": 0, "deed": deed, "outcome": "passed", "gain": gain, **how}
            for deed, gain, how in gains
        ),
    ]
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def test_likely_children_come_beside_random_ones_each_text_once() -> None:
    subject = instance_subject("row_bins")
    alone, both = children_of(Parent(0, subject, "row_bins"), 30), children_of(Parent(0, subject, "row_bins"), 30, 6)
    chosen = {seed: child.text for seed, child in both.items() if seed.startswith(LIKELY)}
    assert {seed: child.text for seed, child in both.items() if seed not in chosen} == {
        seed: child.text for seed, child in alone.items()
    }
    assert chosen
    assert len({child.text for child in both.values()}) == len(both)
    likely = [mutant.text for mutant in likely_mutants(subject)][:6]
    assert all(text == likely[int(seed.removeprefix("likely-"))] for seed, text in chosen.items())


def test_a_report_of_two_harvests_counts_chance_and_choice_apart(tmp_path: Path) -> None:
    chosen = {"chosen": LIKELY}
    first = packed(tmp_path / "first.jsonl.xz", "tub1000", ("hints: x ldcg", 0.9, {}), ("bounds: no bound", 1.03, {}))
    second = packed(
        tmp_path / "second.jsonl.xz", "power", ("off_grid: block 96", 1.10, chosen), ("hints: x ldcg", 1.0, {})
    )
    told = report([first, second], tmp_path, "command")
    assert (told["commit"], told["records"]) == ("first.jsonl, second.jsonl", "first.jsonl.xz, second.jsonl.xz")
    assert (told["workloads"], told["all"]["mutants"], told["all"]["faster_2"]) == (2, 3, round(1 / 3, 4))
    assert (told[LIKELY]["mutants"], told[LIKELY]["best_gain"]) == (1, 1.10)
    assert told["over_tuner"]["by_workload"] == {"power spmv float32 1": 1.1, "tub1000 spmv float32 1": 1.03}


def test_mutators_are_worth_what_chance_found(tmp_path: Path) -> None:
    file = packed(
        tmp_path / "one.jsonl.xz", "power", ("off_grid: block 96", 1.10, {"chosen": LIKELY}), ("hints: x ldcg", 1.0, {})
    )
    heads, changes = read([file])
    assert [head["commit"] for head in heads] == ["one.jsonl"]
    assert [each.mutators for each in changes] == [("hints",)]
