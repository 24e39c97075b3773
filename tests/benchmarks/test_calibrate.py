"""Calibration, whole, on the interpreter: a few tiny matrices, a device of a made-up name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.matrices.calibration import KINDS, calibration_set
from benchmarks.origin import ROOT
from benchmarks.tuning.calibrate import wanting
from benchmarks.tuning.sweep import parse_plan
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.models import CostModels

DEVICE = "NVIDIA Toy 1"
TOY = ("--device", DEVICE, "--kinds", "stencil", "banded", "--nnz", "300", "900", "--plan", "spmv:float32:1:4")


def calibrate(out: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sparsesmith.cli", "calibrate", *TOY, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "SPARSESMITH_EVALUATOR_DEVICE": "interpreter", "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "cost-toy"
    ended = calibrate(out)
    assert ended.returncode == 0, ended.stderr
    return out


def test_a_model_serves_the_device_that_it_was_measured_on_and_no_other(calibrated: Path) -> None:
    models = CostModels(calibrated)
    assert models.on(DEVICE).name == f"cost model of {DEVICE}"
    assert isinstance(models.on("NVIDIA H200"), AnalyticCost)


def test_every_workload_was_measured_and_the_card_says_on_what(calibrated: Path) -> None:
    records = [json.loads(line) for line in (calibrated / "records.jsonl").read_text().splitlines()]
    made = calibration_set((300, 900), ("stencil", "banded"))
    assert {record["pattern"] for record in records} == {each.name for each in made}
    assert f"# Model card: cost model of {DEVICE}" in (calibrated / "README.md").read_text()


def test_the_next_run_goes_on_with_the_workloads_that_no_record_is_of(tmp_path: Path) -> None:
    first, second = calibration_set((300, 900), ("stencil",))
    plans = [parse_plan("spmv:float32:1:4"), parse_plan("spmm:float32:8:4")]
    workload = {"pattern": first.name, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
    (tmp_path / "records.jsonl").write_text(json.dumps(workload) + "\n")
    left = wanting([first, second], plans, tmp_path / "records.jsonl")
    assert left == [(second.name, plans[0]), (first.name, plans[1]), (second.name, plans[1])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_of_every_kind_has_about_as_many_nonzeros_as_asked_for(kind: str) -> None:
    (made,) = calibration_set((20_000,), (kind,))
    assert 8_000 < made.make().nnz < 30_000
