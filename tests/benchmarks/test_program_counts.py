"""What a program comes to is counted as the format has it and as the compiler says."""

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.measure.program_counts import main
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.tuning.grid import grid_of


def test_a_program_is_counted_beside_the_family_program_most_alike(tmp_path: Path) -> None:
    dense = np.tri(40, 40, dtype=np.float32)
    pattern = pattern_from_scipy(sp.csr_matrix(dense))
    grid = grid_of(pattern, "spmm", "float32", 32)
    offered = (grid.instance(index).written for index in range(len(grid.entries)))
    family = next(text for text in offered if "format hyb width=WIDTH rest=rows" in text)
    width = next(line for line in family.splitlines() if line.startswith("//@ let WIDTH"))
    written = family.replace(width, "//@ let WIDTH = 31")
    assert written != family
    line = {"pattern": "stairs", "operation": "spmm", "element_type": "float32", "num_dense_cols": 32}
    pack, programs, out = tmp_path / "some.pack", tmp_path / "programs.jsonl", tmp_path / "out.json"
    write_pack(pack, {"stairs": encode_pattern(pattern)})
    programs.write_text(json.dumps(line | {"programs": [written, family]}) + "\n")

    main([str(pack), str(programs), "--width", "40", "--out", str(out)])

    own, offered_row = json.loads(out.read_text())["rows"]
    assert own["row_lengths"]["quantiles"]["1"] == 40
    assert (own["kind"], offered_row["kind"]) == ("outside_grid", "family")
    assert own["counts"]["sizes"]["num_rest_rows"] == 9, "rows of 32 to 40 nonzeros"
    assert own["counts"]["other_widths"]["40"]["num_rest_rows"] == 0
    (launch,) = own["counts"]["launches"]
    assert launch["blocks"] == launch["grid"][0] > 9
    assert 16 <= launch["registers"] <= 255
    assert own["most_alike"]["format"] == "hyb"
    assert own["most_alike"]["parameters"]["width"] != 31
    assert offered_row["most_alike"] is None
