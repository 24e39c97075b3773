"""What compiling costs is measured step by step, and by a tree's own compiler."""

import json
from pathlib import Path

from benchmarks.measure.compile_costs import _sources, in_turns, stages
from benchmarks.origin import ROOT


def test_every_step_of_a_compilation_is_measured() -> None:
    (source,) = _sources(1)
    measured = stages([source])
    assert list(measured) == ["nvrtc", "compare", "read", "registers", "print", "assemble", "judge"]
    assert measured["nvrtc"]["mean"] > 1


def test_the_compiler_of_a_tree_compiles_the_programs_in_its_own_process(tmp_path: Path) -> None:
    (source,) = _sources(1)
    rows = in_turns([source], {"old": ROOT, "new": ROOT}, 1)
    assert json.loads(json.dumps(rows)) == rows
    assert len(rows["cpu_ms_a_program"]["new"]) == 1 and rows["share_of_old"] > 0
