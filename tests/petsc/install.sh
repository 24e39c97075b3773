#!/usr/bin/env bash
# Debian's petsc4py, a CPU build of PETSc, for tests/petsc. Nothing where pip has installed one.
set -euo pipefail
apt-get install --yes --no-install-recommends python3-petsc4py python3-scipy
