"""An operation that another package brings in a folder of its own: not a file of ours is edited for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsesmith.operations import operations

OUTSIDE = Path(__file__).with_name("outside")
ROOT = Path(__file__).parents[2]


def run_outside(*words: str) -> subprocess.CompletedProcess[str]:
    """Python with the other package installed, as a folder on its path."""
    path = os.pathsep.join(map(str, (OUTSIDE, ROOT, ROOT / "proto")))
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.mark.timeout(600)
def test_an_operation_from_outside_is_graded_tuned_and_taken_home() -> None:
    run = run_outside("-m", "tests.operations.tune_outside")
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["outcomes"] == {"naive": "passed", "signs kept": "mismatch"}
    assert "y[" in told["message"]
    assert told["routines"] == ["thread_a_row"]
    assert told["tried"] == 3
    assert told["best_us"] > 0
    assert told["header"]


def test_an_operation_from_outside_stands_in_the_catalogue_beside_ours() -> None:
    run = run_outside("-c", "from sparsesmith.operations import operations; print(*operations())")
    assert run.stdout.split() == [*operations(), "absolute_product"]


def test_a_text_prompt_tells_of_an_operation_from_outside() -> None:
    run = run_outside(
        "-c",
        "from sparsesmith.matrix.pattern import pattern_from_indices as p\n"
        "from sparsesmith.prompts.text import text_prompt\n"
        "from sparsesmith_proto.kernel import Prompt, Workload\n"
        "pattern = p(2, 2, [0, 1], [1, 0])\n"
        "workload = Workload(pattern=pattern.digest, operation='absolute_product', element_type='float32')\n"
        "print(text_prompt(pattern, workload, Prompt(encoder='text', architecture='sm_90', sample_seed=1)))\n",
    )
    assert "computes y = |A| x for the sparse matrix" in run.stdout, run.stderr[-2000:]
