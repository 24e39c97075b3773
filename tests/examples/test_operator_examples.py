"""The operator's examples, each run as a user would, on a saved operator."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from benchmarks.matrices.linear_programs import linear_program
from sparsesmith.operator import Operator
from sparsesmith.program.starting import starting_program
from tests.artifacts.answers import make_report

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def laplacian(side: int = 20) -> scipy.sparse.csr_matrix:
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    one = scipy.sparse.identity(side)
    return scipy.sparse.csr_matrix(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))


@pytest.fixture(scope="module")
def operator_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `sparsesmith.tune(matrix, element_type="float64").save(path)` leaves it."""
    path, matrix = tmp_path_factory.mktemp("operator") / "A.operator", laplacian()
    report = make_report(matrix, starting_program("csr", "spmv", "float64"), element_type="float64")
    Operator(report, matrix).save(path)
    return path


def run(example: str, *words: str | Path) -> str:
    """What it prints."""
    command = [sys.executable, EXAMPLES / example, *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_conjugate_gradients_converge(operator_file: Path) -> None:
    words = run("cg.py", operator_file).split()
    assert words[0] == "residual" and float(words[1].rstrip(",")) < 1e-6 * np.sqrt(400) and words[-1] == "0"


def test_a_layer_learns(operator_file: Path) -> None:
    pytest.importorskip("torch")
    words = run("layer.py", operator_file).split()
    assert words[0] == "loss" and float(words[1]) < 0.9


def test_a_linear_programme_is_solved(tmp_path: Path) -> None:
    path, matrix = tmp_path / "A.operator", linear_program("transport", 200).matrix
    report = make_report(matrix, starting_program("csr", "spmv", "float64"), element_type="float64")
    Operator(report, matrix).save(path)
    words = run("pdhg.py", path).split()
    assert float(words[1].rstrip(",")) == pytest.approx(matrix.shape[1], rel=1e-3) and float(words[-1]) < 0.05
