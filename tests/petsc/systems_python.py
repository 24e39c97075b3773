"""pytest in the system's Python, with Debian's petsc4py and the NumPy and SciPy that it was built for; all else from
the packages of another Python of the same version: /usr/bin/python3 systems_python.py SITE_PACKAGES OPTION ..."""

import importlib
import sys
from pathlib import Path

(petsc4py, *_) = Path("/usr/lib/petscdir").glob("*/*/lib/python3/dist-packages")
here = [folder for folder in sys.path if "dist-packages" not in folder]
sys.path[:] = [str(petsc4py), "/usr/lib/python3/dist-packages", *here]
for name in ("numpy", "scipy.sparse.linalg", "petsc4py.PETSc"):
    importlib.import_module(name)
sys.path[:] = [*here, sys.argv[1]]
sys.exit(importlib.import_module("pytest").main(sys.argv[2:]))
