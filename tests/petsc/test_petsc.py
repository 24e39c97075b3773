"""PETSc's solvers with the operator: this Python's petsc4py, or Debian's, which tests/petsc/install.sh installs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE, ROOT = Path(__file__).parent, Path(__file__).resolve().parents[2]
SYSTEMS = Path("/usr/bin/python3")
MAJOR_AND_MINOR = "import sys; print(*sys.version_info[:2])"


def command() -> list[str | Path]:
    """What runs tests with petsc4py. Skips where there is none."""
    if importlib.util.find_spec("petsc4py") is not None:
        return [sys.executable, "-m", "pytest"]
    if not [*Path("/usr/lib/petscdir").glob("*/*/lib/python3/dist-packages/petsc4py")]:
        pytest.skip("there is no petsc4py: tests/petsc/install.sh installs Debian's")
    systems = subprocess.run([SYSTEMS, "-c", MAJOR_AND_MINOR], capture_output=True, text=True, check=True).stdout
    if systems.split() != [str(part) for part in sys.version_info[:2]]:
        pytest.skip(f"Debian's petsc4py is for Python {systems.strip()}, this is another")
    return [SYSTEMS, HERE / "systems_python.py", Path(np.__file__).parents[1]]


def test_krylov_solvers_of_petsc_multiply_with_the_operator() -> None:
    options = ["-q", "-x", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, f"--rootdir={ROOT}"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}
    ran = subprocess.run(
        [*command(), *options, "--import-mode=importlib", HERE / "on_petsc.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout.splitlines()[-1]
