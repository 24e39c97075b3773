"""The operator's examples on a GPU, each run as a user would: those that compute where their arrays lie, and C's."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.artifacts.launcher import current_architecture
from sparsesmith.operator import Operator
from sparsesmith.program.starting import starting_program
from tests.artifacts.answers import make_report

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIDE = 20


@pytest.fixture(params=["kernel", "library"])
def operator_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of a five-point stencil, for this GPU."""
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(SIDE, SIDE))
    one = scipy.sparse.identity(SIDE)
    matrix = scipy.sparse.csr_matrix(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))
    program = starting_program("csr", "spmv", "float64") if request.param == "kernel" else None
    report = make_report(matrix, program, element_type="float64")
    device = report.device.model_copy(update={"architecture": current_architecture()})
    path = tmp_path / "A.operator"
    Operator(report.model_copy(update={"device": device}), matrix).save(path)
    return path


@pytest.mark.parametrize(("example", "needs"), [("cg_cupy.py", "cupyx"), ("cg.py", "scipy"), ("layer.py", "torch")])
def test_an_example_runs_on_the_gpu(example: str, needs: str, operator_file: Path) -> None:
    pytest.importorskip(needs)
    command = [sys.executable, str(EXAMPLES / example), str(operator_file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "SciPy computes the products" not in ran.stderr
    words = ran.stdout.split()
    if example == "layer.py":
        assert words[0] == "loss" and float(words[1]) < 0.9
    else:
        assert words[0] == "residual" and float(words[1].rstrip(",")) < 1e-6 * np.sqrt(SIDE**2) and words[-1] == "0"
