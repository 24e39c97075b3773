"""What a client waits for a kernel at once, on the real stack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.matrices.generated import banded
from benchmarks.origin import ROOT
from benchmarks.service.instant_http import in_turn_ms, without_last


def test_a_pattern_without_its_last_nonzeros_is_another_one() -> None:
    pattern = banded(50, 2)
    shorter = without_last(pattern, 4)
    assert (shorter.nnz, shorter.num_rows) == (pattern.nnz - 4, 50)
    assert shorter.digest != pattern.digest
    assert without_last(pattern, 0).digest == pattern.digest


def test_reading_runs_beside_the_upload_and_is_not_counted_twice() -> None:
    assert in_turn_ms({"choose": 10.0, "read": 5.0, "upload": 3.0, "read_wait": 2.0}) == 15.0


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_what_the_client_waits_holds_the_services_time_and_that_the_evaluators(tmp_path: Path) -> None:
    words = ["--nnz", "5e3", "--runs", "1", "--settle", "0", "--seconds", "1", "--out", str(tmp_path)]
    environment = {"SPARSESMITH_EVALUATOR_DEVICE": "interpreter", "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.instant_http", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    row = json.loads((tmp_path / "cpu" / "instant-http.json").read_text())["rows"][0]
    assert row["http_ms"] >= row["tuning_ms"] >= row["evaluator_ms"] > 0
