"""PyG's layers with the operator's product."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import scipy.sparse

from sparsesmith.operator import Operator
from tests.artifacts.answers import make_report

pytest.importorskip("torch_geometric", reason="torch_geometric is not installed: pip install torch_geometric")

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_learns_as_pygs_own_layer(tmp_path: Path) -> None:
    adjacency = scipy.sparse.random(60, 60, 0.1, format="csr", random_state=1)
    Operator(make_report(adjacency, None), adjacency).save(tmp_path / "A.operator")
    command: list[str | Path] = [sys.executable, ROOT / "examples" / "pyg_convolution.py", tmp_path / "A.operator"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    found = re.fullmatch(r"gradient as PyG's own to (\S+)\n", ran.stdout)
    assert found and float(found[1]) < 1e-5, ran.stdout + ran.stderr
