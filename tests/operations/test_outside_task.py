"""A task that another package brings in a folder of its own, and what is wrong with such folders: told at the start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OUTSIDE = Path(__file__).with_name("outside_task")
ROOT = Path(__file__).parents[2]


def run_with(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with another package installed, as a folder on its path."""
    path = os.pathsep.join(map(str, (folder, ROOT, ROOT / "proto")))
    chosen = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=chosen, cwd=ROOT)


@pytest.mark.timeout(600)
def test_a_task_from_outside_is_graded_and_tuned() -> None:
    run = run_with(OUTSIDE, "-m", "tests.operations.tune_outside_task")
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["outcomes"] == {
        "naive": "passed",
        "no largest": "mismatch",
        "last column left out": "mismatch",
        "one entry left out of the sum": "mismatch",
        "every row as the first": "mismatch",
        "written into x": "rejected",
        "of another task": "rejected",
        "of a format": "rejected",
        "for other sizes": "rejected",
    }
    messages = told["messages"]
    assert (
        messages["last column left out"].startswith("input ")
        and "y[0, 89] was not written" in messages["last column left out"]
    )
    assert "`//@ task row_softmax` is needed" in messages["of another task"]
    assert "`//@ task row_softmax` is needed" in messages["of a format"]
    assert "the program requires cols=91, this task has 90" in messages["for other sizes"]
    assert told["routines"] == ["thread_a_row"]
    families = {name.split()[0] for name in told["times"]}
    assert families == {"row_softmax_programs", "row_softmax_lanes"}
    assert told["best_us"] == min(told["times"].values())


WRONG = {
    "lacks a part": ('trial={"rows": 37, "cols": 53},', "", "'trial'"),
    "an axis that it does not have": ('"cols": 53},', '"cols": 53, "depth": 2},', "trial: axes.depth"),
    "a reference of another shape": (
        "Expected(y, y,",
        "Expected(y[:, 1:], y,",
        "expect: the reference of y has the shape",
    ),
    "NaN on finite inputs": ("y = grown / grown", "y = np.nan * grown / grown", "expect: the reference of y is NaN"),
    "an output left out": ('{"y": Expected', '{"z": Expected', "expect: it tells of z, needed: y"),
    "a naive program that fails": ("sum += exp", "sum += 2 * exp", "programs/thread_a_row: it fails its own check"),
    "a naive program that does not compile": ("T largest", "U largest", "programs/thread_a_row: it does not compile"),
    "the name of another": ('name="row_softmax"', 'name="spmv"', "name is 'spmv'"),
    "the id of another": ("programs=program_texts", "header_id=1,\n    programs=program_texts", "header_id is 1"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.timeout(300)
def test_a_registered_task_that_cannot_be_right_is_refused_at_the_start_by_folder_and_part(
    what: str, tmp_path: Path
) -> None:
    before, after, told = WRONG[what]
    changed = 0
    for file in OUTSIDE.rglob("*.*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = tmp_path / file.relative_to(OUTSIDE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = file.read_text(encoding="utf-8")
            changed += before in text
            copy.write_text(text.replace(before, after), encoding="utf-8")
    assert changed
    run = run_with(tmp_path, "-m", "services.evaluator", "--burst", SPARSESMITH_EVALUATOR_DEVICE="interpreter")
    assert run.returncode == 1
    assert told in run.stderr, run.stderr[-2000:]
    assert str(tmp_path / "row_softmax") in run.stderr
