"""Records as the repository keeps them: texts are written from parameters; what teaches nothing is counted."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from tokenizers import Tokenizer

from services.trainer.offline.commands import main, read_programs, run_stage
from services.trainer.offline.data_commands import in_equal_parts
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.records import Record, Rendering, read_records
from services.trainer.offline.targets import TargetRule, workload_targets
from services.trainer.policy_model import PolicyNetworks
from sparsesmith.families import propose
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.policy.checkpoint import load_policy, save_language_model
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers, is_open
from tests.families import golden

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
PATTERN = golden.PATTERNS["five points"]()


def record_of(family: str, /, **changes: Any) -> Record:
    """Of the first prospect of a family; a change to None leaves a field out."""
    found = next(
        each for each in prospects_of(work_of(PATTERN, "float32"), "spmv", "float32") if each.family.name == family
    )
    record = {
        "pattern": "points", "operation": "spmv", "element_type": "float32", "num_dense_cols": 1,
        "family": family, "parameters": found.parameters, "median_us": 2.0, **changes,
    }  # fmt: skip
    return {name: value for name, value in record.items() if value is not None}


def program_of(record: Record) -> str:
    (rendered,) = Rendering()([record])
    return str(rendered["program"])


def test_the_committed_records_give_targets() -> None:
    """They hold no texts."""
    records = list(itertools.islice(read_records(RECORDS / "h200.jsonl.xz"), 400))
    assert all("program" not in record for record in records)
    rendering = Rendering()
    workloads = workload_targets(rendering(records), TargetRule())
    assert workloads
    assert all(workload.targets for workload in workloads)
    kept = sum(len(workload.measured) for workload in workloads)
    assert kept + rendering.left_out.total() <= len(records)
    assert kept > 0.8 * len(records)


@pytest.mark.parametrize("family", ["row_bins", "ell_fixed", "dia_literal", "dia_literal_wide"])
def test_open_numbers_come_to_the_program_that_was_measured(family: str) -> None:
    rendering = Rendering("open", {"points": PATTERN}.__getitem__)
    record = record_of(family)
    (opened,) = rendering([record])
    assert is_open(opened["program"])
    bound = bind_numbers(opened["program"], {}, Circumstances(PATTERN, 1, 132), "spmv", "float32")
    assert bound.text == program_of(record)


def test_a_program_whose_numbers_are_not_those_of_today_keeps_them() -> None:
    parameters = dict(record_of("row_bins")["parameters"])
    other = record_of("row_bins", parameters={**parameters, "widths": "5", "warps": "143"})
    rendering = Rendering("open", {"points": golden.PATTERNS["random"]()}.__getitem__)
    (kept,) = rendering([other])
    assert kept["program"] == program_of(other)
    assert rendering.kept_plain == {"row_bins": 1}


def test_a_family_without_such_numbers_is_written_as_ever() -> None:
    record = record_of("csr_vector")
    assert [each["program"] for each in Rendering("open", {"points": PATTERN}.__getitem__)([record])] == [
        program_of(record)
    ]


def test_a_text_that_was_kept_is_taken() -> None:
    assert program_of(record_of("csr_vector", program="the text")) == "the text"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"median_us": 0.0}, "median_us is not a positive number"),
        ({"median_us": -1.0}, "median_us is not a positive number"),
        ({"median_us": math.nan}, "median_us is not a positive number"),
        ({"median_us": math.inf}, "median_us is not a positive number"),
        ({"median_us": "2"}, "median_us is not a positive number"),
        ({"median_us": None}, "median_us is not a positive number"),
        ({"family": "csr_of_old"}, "unknown family csr_of_old"),
        ({"family": None}, "neither a program nor a family with its parameters"),
        ({"parameters": None}, "neither a program nor a family with its parameters"),
        ({"parameters": {"lanes": 3}}, "family csr_vector does not take these parameters"),
        ({"operation": "spmm"}, "family csr_vector does not take these parameters"),
    ],
)
def test_what_teaches_nothing_is_left_out_and_counted_by_its_reason(changes: dict[str, Any], reason: str) -> None:
    rendering = Rendering()
    good = record_of("csr_vector")
    assert len(list(rendering([good, record_of("csr_vector", **changes), good]))) == 2
    assert rendering.left_out == {reason: 1}


def test_records_are_read_plain_and_packed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record_of("csr_vector")) + "\n\n", encoding="utf-8")
    assert list(read_records(path)) == [record_of("csr_vector")]


def test_records_of_patterns_that_are_not_there_are_left_out_by_name(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "points.npz", PATTERN.to_scipy(np.ones(PATTERN.nnz, np.float32)))
    records = [record_of("csr_vector"), record_of("csr_vector", pattern="elsewhere")]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    given = ["--records", str(tmp_path / "records.jsonl"), "--patterns", str(tmp_path)]
    report = run_stage(["examples", *given, "--out", str(tmp_path / "examples.jsonl")])
    assert report["left_out"] == {"no pattern elsewhere": 1}


def test_the_report_counts_pairs_of_a_harvest_that_are_named_on_matrices_that_are_there(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "points.npz", PATTERN.to_scipy(np.ones(PATTERN.nnz, np.float32)))
    record = record_of("row_bins")
    parent = {**record, "kind": "parent", "number": 0, "program": program_of(record), "tuned_us": 2.0}
    problem = {name: record[name] for name in ("pattern", "operation", "element_type", "num_dense_cols")}
    passed = {"parent": 0, "lines": [], "outcome": "passed", "final_us": 1.9, "gain": 1.05}
    lines = [parent, {"kind": "mutant", **problem, **passed}]
    lines += [{**line, "pattern": "elsewhere"} for line in lines]
    (tmp_path / "records.jsonl").write_text(json.dumps(record), encoding="utf-8")
    (tmp_path / "harvest.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    given = ["--records", str(tmp_path / "records.jsonl"), "--harvest", str(tmp_path / "harvest.jsonl")]
    report = run_stage(["examples", *given, "--patterns", str(tmp_path), "--out", str(tmp_path / "examples.jsonl")])
    assert report["harvest_pairs"] == {"named": 1}
    (workload,) = itertools.chain.from_iterable(
        read_examples(tmp_path / "examples.jsonl", TargetRule()).workloads.values()
    )
    assert [each.graded for each in workload.measured] == [program_of(record)], "records and harvest hold one program"


def test_families_give_equal_parts_and_what_one_lacks_others_give() -> None:
    chosen = in_equal_parts(
        {"a": [f"a{i}" for i in range(100)], "b": ["b0", "b1"], "c": [f"c{i}" for i in range(9)]}, 17
    )
    families = [family for family, _ in chosen]
    assert {name: families.count(name) for name in "abc"} == {"a": 8, "b": 2, "c": 7}
    assert len(set(chosen)) == 17
    assert len(in_equal_parts({"a": ["x"]}, 10)) == 1


def test_records_without_texts_become_a_policy(networks: PolicyNetworks, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`programs`, then `sft`, as from a shell; a record of an unknown family is told of."""
    named = {"points": PATTERN, "random": golden.PATTERNS["random"]()}
    for name, pattern in named.items():
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", pattern.to_scipy(np.ones(pattern.nnz, np.float32)))
    records = [
        {**record_of("csr_vector"), "pattern": name, "parameters": instance.parameters, "family": instance.family}
        for name, pattern in named.items()
        for instance in propose(pattern, "spmv", "float32", limit=6)
    ]
    records += [{**record_of("csr_vector"), "pattern": name} for name in named]
    lines = [json.dumps(record) for record in (*records, record_of("csr_vector", family="csr_of_old"))]
    (tmp_path / "records.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "split.csv").write_text("name,split\npoints,train\nrandom,validation\n", encoding="utf-8")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_language_model(networks.model, tmp_path / "model")
    data = ["--records", "records.jsonl", "--patterns", ".", "--split", "split.csv"]
    given = [word if word.startswith("--") else str(tmp_path / word) for word in data]
    assert main(["programs", *given, "--out", str(tmp_path / "programs.jsonl")]) == 0
    assert all(is_open(text) == ("let" in text) for text in read_programs(tmp_path / "programs.jsonl"))
    assert len(list(read_programs(tmp_path / "programs.jsonl"))) == 7
    assert main(["examples", *given, "--out", str(tmp_path / "examples.jsonl.xz")]) == 0
    data = ["--examples", str(tmp_path / "examples.jsonl.xz"), "--patterns", str(tmp_path)]
    stage = ["sft", *data, "--tokenizer", str(tmp_path / "tokenizer.json"), "--pretrained", str(tmp_path / "model")]
    short = ["--seconds", "1", "--prompt-samples", "1", "--processes", "1"]
    assert main([*stage, *short, "--max-text-tokens", "1000", "--out", str(tmp_path / "policy")]) == 0
    training = load_policy(tmp_path / "policy").description.training["supervised"]
    assert training["train_workloads"] == training["validation_workloads"] == 1
    assert training["records"]["left_out"] == {"unknown family csr_of_old": 1}
    assert training["nats"]["write"]["program"] > 0
    assert main(["nats", *data, "--policy", str(tmp_path / "policy"), "--prompt-samples", "1", "--processes", "1"]) == 0
