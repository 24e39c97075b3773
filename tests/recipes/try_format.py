"""Run in a tree with the recipe's format in it: built and restored, graded on the interpreter, taken home."""

import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import scipy.sparse

from sparsesmith.artifacts.cpp_header import cpp_header, cpp_parameters
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.formats import FORMATS, complete_parameters
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith_proto.kernel import Passed
from tests.artifacts.answers import make_device, make_matrix, make_report, make_workload
from tests.artifacts.test_cpp_layouts import MAIN, PATTERNS, built_in_cpp, built_in_python
from tests.recipes.grading import outcomes

NAME = "csr_based"
PROGRAM = """//@ format csr_based base=one
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j] - 1];
  y[row] = sum;
}
"""


def compare_builders(folder: Path) -> None:
    """The arrays of the C++ builder and of the Python builder, and back to the pattern."""
    cpp = files("sparsesmith.artifacts") / "cpp"
    for base in ("zero", "one"):
        parameters = complete_parameters(FORMATS[NAME], {"base": base})
        code = (cpp / "layout.hpp").read_text() + (cpp / f"{NAME}.hpp").read_text()
        code += MAIN.replace("BUILD", f"build_{NAME}").replace("PARAMETERS", cpp_parameters(FORMATS[NAME], parameters))
        (folder / f"{base}.cpp").write_text(code)
        command = ["g++", "-std=c++17", "-Wall", "-Werror", "-o", str(folder / base), str(folder / f"{base}.cpp")]
        subprocess.run(command, check=True)
        for matrix in PATTERNS.values():
            pattern = pattern_from_scipy(scipy.sparse.csr_matrix(matrix))
            assert built_in_cpp(pattern, folder / base) == built_in_python(pattern, NAME, parameters)
            layout = FORMATS[NAME].build(pattern, parameters)
            restored = FORMATS[NAME].restore(layout, parameters, pattern.num_rows, pattern.num_cols)
            assert restored.digest == pattern.digest


def main() -> None:
    matrix = make_matrix()
    pattern = pattern_from_scipy(matrix)
    for outcome in outcomes({"float32": PROGRAM}):
        assert isinstance(outcome, Passed), outcome
    header = cpp_header(PROGRAM, make_workload(pattern), pattern, make_device())
    assert '{"base_one", 1}' in header and "build_csr_based" in header
    assert "csr_based base=one" in python_loader(make_report(matrix, PROGRAM))
    if shutil.which("g++") is None:
        sys.exit("g++ is not installed: the C++ builder was not compared")
    with tempfile.TemporaryDirectory() as folder:
        compare_builders(Path(folder))


if __name__ == "__main__":
    main()
