"""Tokens a program: both forms of the same programs, counted by the shipped tokenizer and by one learned anew."""

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.learning.tokens import main
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import pattern_from_scipy


def test_open_programs_are_learned_on_one_side_and_counted_on_the_other(tmp_path: Path) -> None:
    records, sides = [], ["name,split"]
    for number in range(6):
        name, size = f"m{number}", 300 + 40 * number
        matrix = sp.random(size, size, 0.01 + 0.002 * number, format="csr", rng=np.random.default_rng(number))
        sp.save_npz(tmp_path / f"{name}.npz", matrix)
        sides.append(f"{name},{'train' if number < 4 else 'validation'}")
        for place, each in enumerate(propose(pattern_from_scipy(matrix), "spmv", "float32", limit=20)):
            common = {"pattern": name, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
            own = {"family": each.family, "parameters": each.parameters, "median_us": 2.0 + place}
            records.append(json.dumps(common | own))
    (tmp_path / "records.jsonl").write_text("\n".join(records), encoding="utf-8")
    (tmp_path / "split.csv").write_text("\n".join(sides), encoding="utf-8")
    paths = {
        "records": "records.jsonl",
        "patterns": "",
        "split": "split.csv",
        "out": "out.json",
        "out-tokenizer": "t.json",
    }
    main([word for option, path in paths.items() for word in (f"--{option}", str(tmp_path / path))])
    told = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    of_bins = told["families"]["row_bins"]
    assert of_bins["different_open"] <= of_bins["programs"]
    assert of_bins["learned_open"] <= of_bins["shipped_open"]  # Which was learned from the like.
    assert told["learned"]["vocabulary"] <= 8192
    assert (tmp_path / "t.json").is_file()
