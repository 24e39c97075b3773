"""What fails of a policy's samples is counted by what it is, on a real interpreter."""

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.learning.sample_failures import main
from benchmarks.matrices.suites import permuted
from benchmarks.report.policy import interpreted_lines
from sparsesmith.families import propose
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import pattern_from_scipy


def test_failures_are_counted_by_outcome_and_format_as_often_as_they_were_drawn(tmp_path: Path) -> None:
    pattern = pattern_from_scipy(sp.random(60, 50, 0.1, format="csr", random_state=np.random.default_rng(3)))
    good = next(each for each in propose(pattern, "spmv", "float32", limit=40) if each.family == "csr_scalar").written
    wrong, none = good.replace("y[row] = sum", "y[row] = sum + 1"), good.replace("//@ launch", "//@ lunch")
    assert good not in (wrong, none)
    line = {"policy": "some", "pattern": "small", "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
    samples, pack, out = tmp_path / "samples.jsonl", tmp_path / "some.pack", tmp_path / "out.json"
    samples.write_text(json.dumps(line | {"programs": [good, wrong, none, wrong]}) + "\n")
    write_pack(pack, {"small": encode_pattern(pattern)})

    main([str(pack), str(samples), "--out", str(out)])

    result = json.loads(out.read_text())
    (row,) = result["rows"]
    assert (row["operation"], row["element_type"], row["num_dense_cols"]) == ("spmv", "float32", 1)
    assert row["outcomes"] == {"mismatch": 2, "passed": 1, "rejected": 1}
    assert row["failures"][0] == {"outcome": "mismatch", "format": "csr", "samples": 2}
    assert row["failed_by_matrix"] == {"small": 3}
    assert (row["samples"], row["different"]) == (4, {"small": 1})
    assert row["pass_at"] == {"1": 0.25, "4": 1.0}
    assert row["examples"][0]["program"] == wrong
    assert "lunch" in row["examples"][1]["message"]


def test_programs_for_permuted_matrices_are_graded_on_them(tmp_path: Path) -> None:
    long_row = sp.lil_matrix((8, 8), dtype=np.float32)
    long_row[0, :] = 1
    pattern = pattern_from_scipy(long_row.tocsr())
    where = int(np.flatnonzero(permuted(pattern, 1).row_lengths)[0])
    assert where != 0
    text = next(each for each in propose(pattern, "spmv", "float32", limit=40) if each.family == "csr_scalar").written
    only_there = text.replace("y[row] = sum", f"y[row] = row == {where} ? sum : 0")
    line = {"policy": "some", "pattern": "small", "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
    samples, pack, out = tmp_path / "samples.jsonl", tmp_path / "some.pack", tmp_path / "out.json"
    write_pack(pack, {"small": encode_pattern(pattern)})
    for how, outcome in (({}, "mismatch"), ({"permuted": 1}, "passed")):
        samples.write_text(json.dumps(line | how | {"programs": [only_there] * 4}) + "\n")
        main([str(pack), str(samples), "--out", str(out)])
        result = json.loads(out.read_text())
        assert result["rows"][0]["outcomes"] == {outcome: 4}
        assert result.get("permuted") == how.get("permuted")
        shown = interpreted_lines([result | {"file": "cpu/x.json"}])[-1]
        assert ("rows and columns permuted" in shown) == bool(how)


def test_the_report_has_a_line_for_each_kind_of_workload() -> None:
    row = {
        "operation": "spmm",
        "element_type": "float32",
        "num_dense_cols": 64,
        "outcomes": {"passed": 30, "crashed": 2},
    }
    row |= {"pass_at": {"1": 0.9375, "4": 1.0}, "different": {"a": 3, "b": 4}}
    old = {"operation": "spmv", "element_type": "float64", "outcomes": {"mismatch": 4}}
    result = {
        "kind": "sample_failures",
        "policy": "some",
        "commit": "0123456789",
        "matrices": 2,
        "file": "cpu/them.json",
    }
    lines = interpreted_lines([result | {"rows": [row, old]}, {"kind": "another"}])
    assert lines[-2:] == [
        "| spmm float32, 64 columns | 2 | 16 | 93.8% | 100.0% | 3.5 | some, 01234567 | [them](results/cpu/them.json) |",
        "| spmv float64 | 2 | 2 | 0.0% | - | - | some, 01234567 | [them](results/cpu/them.json) |",
    ]
    assert interpreted_lines([{"kind": "another"}]) == []
    train = result | {"rows": [old], "split": "train"}
    assert interpreted_lines([train])[-1].startswith("| spmv float64, train side | 2 | ")
