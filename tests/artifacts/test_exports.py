"""Answers in the formats of the suites that their tasks came from, on a stand-in driver that interprets the kernels."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparsesmith.artifacts.exports import exported
from sparsesmith.errors import Conflict
from tests.artifacts.answers import report_of
from tests.artifacts.test_task_artifacts import BUILT
from tests.evaluator.references.problems import SCALED, definition, workload, written_definition
from tests.operator.stand_in import ROOT, run_on_the_stand_in


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_exported_kernels_compute_what_their_suites_ask_for(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    problem = tmp_path / "weighted.py"
    problem.write_text(SCALED)
    norm = written_definition(tmp_path, definition(), workload())
    importer = [sys.executable, "-m", "services.evaluator.references"]
    for path, words in ((problem, ["--name", "weighted", "--set", "rows=6"]), (norm, [])):
        command = [*importer, str(path), "--into", str(tmp_path / "tasks"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    inner = Path(__file__).with_name("exports_on_the_stand_in.py")
    run_on_the_stand_in(inner, tmp_path, EXPORTED_TASKS=str(tmp_path / "tasks"))


def test_a_task_that_came_from_no_suite_goes_back_to_none() -> None:
    built = BUILT["dot"]
    with pytest.raises(Conflict, match="dot was not imported"):
        exported(report_of(built.problem.workload, built.text))
