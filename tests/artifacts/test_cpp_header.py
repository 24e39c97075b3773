"""Generated headers, compiled by nvcc and run on a CUDA runtime of our own in host memory (skipped without nvcc).

The runtime prints each launch and the contents of every argument: no GPU is needed to see that the format is built,
that the arguments stand in order and that headers live together.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparsesmith.artifacts.cpp_header import cpp_header, workload_name
from sparsesmith.elements import dtype_of
from sparsesmith.families import FAMILIES
from sparsesmith.formats import FORMATS
from sparsesmith.formats.format import Argument, Layout
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType
from tests.artifacts.answers import make_device, make_matrix, make_workload
from tests.kernels.corpus import FOLDER, CorpusProgram, read_program

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

PROGRAMS = [
    "bsell",
    "bsr",
    "cells",
    "coo_atomics",
    "csc",
    "csr_dynamic_shared",
    "csr_macros_and_conditions",
    "csr_merge_merge",
    "csr_merge_nnz",
    "csr_merge_u16",
    "csr_programmatic",
    "csr_rowblocks_u16",
    "csr_scalar",
    "csr_scratch",
    "csr_scratch_programmatic",
    "csr_spmm",
    "csr_tiles_split",
    "csr_u16",
    "csr_u16_row",
    "dia",
    "ell",
    "hubs",
    "hyb",
    "hyb_coo",
    "panels_rounds",
    "row_bins",
    "row_bins_u18",
    "sell_sorted",
    "sell_u16",
    "sell_u8",
]
KINDS = {
    "int": "i",
    "int*": "I",
    "unsigned int*": "I",
    "unsigned short*": "S",
    "unsigned char*": "B",
    "float*": "F",
    "double*": "D",
}
OWN_TYPES = {"unsigned int*": "uint32", "unsigned short*": "uint16", "double*": "float64"}
SHORT_TYPES: dict[str, ElementType] = {"float16": "float16", "bfloat16": "bfloat16"}
"""Programs of a family instead: the corpus is for GPUs as well, which do not judge 16-bit numbers."""
KINDS |= {"__half*": "S", "__nv_bfloat16*": "S"}
"""16-bit numbers are printed as their bits."""

MAIN = """
#include <cstdio>
#include <cstdlib>
#include <exception>
extern std::string argument_kinds;
int num_allocated();
int in_another_unit();
template <typename Kernel, typename Element>
void multiply(int num_dense_cols) {
  int num_rows, num_cols, nnz;
  if (std::scanf("%d %d %d", &num_rows, &num_cols, &nnz) != 3) std::abort();
  std::vector<int> row_offsets(num_rows + 1), col_indices(nnz);
  std::vector<Element> values(nnz);
  for (int& word : row_offsets) if (std::scanf("%d", &word) != 1) std::abort();
  for (int& word : col_indices) if (std::scanf("%d", &word) != 1) std::abort();
  double value;
  for (Element& word : values) { if (std::scanf("%lf", &value) != 1) std::abort(); word = Element(value); }
  void *input, *output;
  cudaMalloc(&input, sizeof(Element) * num_cols * num_dense_cols);
  cudaMalloc(&output, sizeof(Element) * num_rows * num_dense_cols);
  static_cast<Element*>(input)[0] = Element(7.0f);
  static_cast<Element*>(output)[0] = Element(9.0f);
  try {
    Kernel kernel(num_rows, num_cols, row_offsets.data(), col_indices.data(), values.data());
    kernel(static_cast<Element*>(input), static_cast<Element*>(output));
  } catch (const std::exception& error) {
    std::printf("refused %s\\n", error.what());
  }
  cudaFree(input);
  cudaFree(output);
}
int main(int, char** arguments) {
  argument_kinds = arguments[2];
  switch (std::atoi(arguments[1])) {
CASES  }
  std::printf("left %d\\n", num_allocated() + in_another_unit());
}
"""


@dataclass(frozen=True)
class Built:
    """A program of the corpus, tuned for a matrix of its own."""

    number: int
    corpus: CorpusProgram
    matrix: Any
    workload: Workload
    program: KernelProgram

    @property
    def namespace(self) -> str:
        return f"sparsesmith_{workload_name(self.workload)}"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.program.signature

    def header(self) -> str:
        return cpp_header(self.corpus.text, self.workload, pattern_from_scipy(self.matrix), make_device())


def of_family(element_type: ElementType) -> CorpusProgram:
    family = FAMILIES["csr_vector"]
    text = family.render({name: spec.default for name, spec in family.parameters.items()}, element_type)
    return CorpusProgram(Path(f"good/{element_type}.cu"), text, (), (), family.operation, element_type, "", "")


def build(number: int, name: str) -> Built:
    corpus = of_family(SHORT_TYPES[name]) if name in SHORT_TYPES else read_program(FOLDER / "good" / f"{name}.cu")
    # The same matrix for two programs of different workloads: their headers must not clash either.
    matrix = make_matrix(seed=0 if name in ("csr_scalar", "csr_spmm") else number + 1)
    num_dense_cols = 3 if corpus.operation == "spmm" else 1
    workload = make_workload(
        pattern_from_scipy(matrix),
        operation=corpus.operation,
        element_type=corpus.element_type,
        num_dense_cols=num_dense_cols,
    )
    program = parse_program(corpus.text, corpus.operation, corpus.element_type)
    return Built(number, corpus, matrix, workload, program)


BUILT = {name: build(number, name) for number, name in enumerate([*PROGRAMS, *SHORT_TYPES])}


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All headers, included by two translation units of one program."""
    folder = tmp_path_factory.mktemp("headers")
    includes = cases = uses = ""
    for built in BUILT.values():
        (folder / f"{built.namespace}.hpp").write_text(built.header())
        includes += f'#include "{built.namespace}.hpp"\n'
        uses += f"  sum += sizeof({built.namespace}::Kernel) == 0;\n"
        names = f"{built.namespace}::Kernel, {built.namespace}::Element"
        cases += f"    case {built.number}: multiply<{names}>({built.workload.num_dense_cols}); break;\n"
    (folder / "main.cu").write_text(includes + MAIN.replace("CASES", cases))
    (folder / "other.cu").write_text(f"{includes}int in_another_unit() {{\n  int sum = 0;\n{uses}  return sum;\n}}\n")
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cudart", "none", "-Xcompiler", "-Wall", "-t", "2"]
    sources = [folder / "main.cu", folder / "other.cu", Path(__file__).with_name("host_cuda.cpp")]
    run = subprocess.run([*command, "-o", folder / "program", *sources], capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert "warning" not in run.stderr, run.stderr
    return folder / "program"


def run(executable: Path, built: Built, matrix: Any) -> list[str]:
    kinds = "".join(KINDS[argument.c_type.removeprefix("const ")] for argument in built.arguments)
    words: list[object] = [*matrix.shape, matrix.nnz, *matrix.indptr, *matrix.indices, *map(repr, matrix.data.tolist())]
    command = [str(executable), str(built.number), kinds]
    done = subprocess.run(command, input=" ".join(map(str, words)), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def expected_arguments(built: Built, layout: Layout) -> Iterator[npt.NDArray[Any]]:
    """The contents of each argument, as the Python builder has them."""
    pattern, columns = pattern_from_scipy(built.matrix), built.workload.num_dense_cols
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, "num_dense_cols": columns}
    element = dtype_of(built.workload.element_type)
    problem = Problem(built.workload, pattern)
    own = bind(built.program, layout, problem, make_device().num_sms).own_scratch
    dense = {"x": pattern.num_cols, "b": pattern.num_cols, "y": pattern.num_rows, "c": pattern.num_rows}
    for argument in built.arguments:
        match argument.role:
            case "size":
                yield np.array([{**sizes, **layout.sizes}[argument.name]])
            case "index":
                yield layout.indices[argument.name]
            case "values":
                yield layout.pack(built.matrix.data.astype(element))
            case "scratch" if argument.name in own:
                yield np.zeros(own[argument.name], np.uint8).view(OWN_TYPES[argument.c_type])
            case "scratch":
                yield np.zeros(layout.scratch[argument.name] * columns, element)
            case "input" | "output":
                vector = np.zeros(dense[argument.name] * columns, element)
                vector[0] = 7 if argument.role == "input" else 9
                yield vector


def test_every_format_is_among_the_programs() -> None:
    assert {built.program.format.name for built in BUILT.values()} == set(FORMATS)


@pytest.mark.parametrize("name", BUILT)
def test_a_header_launches_what_the_python_builder_describes(name: str, executable: Path) -> None:
    built = BUILT[name]
    pattern = pattern_from_scipy(built.matrix)
    layout = built.program.format.build(pattern, built.program.parameters)
    lines = iter([line for line in run(executable, built, built.matrix) if not line.startswith("shared ")])
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, "num_sms": 132}
    sizes |= {"num_dense_cols": built.workload.num_dense_cols, **layout.sizes}
    for launch in built.program.launches:
        resolved = launch.resolve(sizes)
        _, kernel, *configuration = next(lines).split()
        assert launch.kernel in kernel
        assert list(map(int, configuration)) == [*resolved.grid, *resolved.block, resolved.shared_bytes]
        for argument, expected in zip(built.arguments, expected_arguments(built, layout), strict=True):
            expected = expected.view(np.uint16) if expected.dtype.itemsize == 2 else expected
            given = np.array(next(lines).split(), dtype=expected.dtype)
            if given.size == 1 and expected.size == 0:  # At least a byte is allocated.
                continue
            np.testing.assert_array_equal(given, expected, err_msg=argument.name)
    assert list(lines) == ["left 0"], "device memory was not given back"


def test_a_header_refuses_another_pattern_and_leaks_nothing(executable: Path) -> None:
    built = BUILT["csr_scalar"]
    other = make_matrix(seed=99)
    assert run(executable, built, other) == ["refused sparsesmith: the kernel was tuned for another pattern", "left 0"]


def test_dynamic_shared_memory_is_asked_for(executable: Path) -> None:
    built = BUILT["csr_dynamic_shared"]
    first = run(executable, built, built.matrix)[0].split()
    pattern = pattern_from_scipy(built.matrix)
    resolved = built.program.launches[0].resolve({"num_rows": pattern.num_rows})
    assert (first[0], int(first[-1])) == ("shared", resolved.shared_bytes)
