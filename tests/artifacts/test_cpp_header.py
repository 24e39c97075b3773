"""Headers of kernels for matrices on the CUDA runtime of `host_cuda.py`: what they launch, and what they refuse."""

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
from tests.artifacts.host_cuda import Case, HostProgram, build, check_launches
from tests.kernels.corpus import FOLDER, CorpusProgram, corpus, read_program

PROGRAMS = [program.path.stem for program in corpus("good")]
OWN_TYPES = {
    "int*": "int32",
    "unsigned int*": "uint32",
    "unsigned short*": "uint16",
    "float*": "float32",
    "double*": "float64",
}
SHORT_TYPES: dict[str, ElementType] = {"float16": "float16", "bfloat16": "bfloat16"}
"""Programs of a family instead: the corpus is for GPUs as well, which do not judge 16-bit numbers."""

MULTIPLY = """
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

    def case(self) -> Case:
        header = cpp_header(self.corpus.text, self.workload, pattern_from_scipy(self.matrix), make_device())
        names = f"{self.namespace}::Kernel, {self.namespace}::Element"
        return Case(self.namespace, header, f"multiply<{names}>({self.workload.num_dense_cols});")

    def run(self, program: HostProgram, matrix: Any) -> list[str]:
        """What its header's kernel prints for a matrix."""
        words = [*matrix.shape, matrix.nnz, *matrix.indptr, *matrix.indices, *map(repr, matrix.data.tolist())]
        return program.run(self.number, self.arguments, " ".join(map(str, words)))


def of_family(element_type: ElementType) -> CorpusProgram:
    family = FAMILIES["csr_vector"]
    text = family.render({name: spec.default for name, spec in family.parameters.items()}, element_type)
    return CorpusProgram(Path(f"good/{element_type}.cu"), text, (), (), family.operation, element_type, "", "")


def built_of(number: int, name: str) -> Built:
    corpus = of_family(SHORT_TYPES[name]) if name in SHORT_TYPES else read_program(FOLDER / "good" / f"{name}.cu")
    # The same matrix for two programs of different workloads: their headers must not clash either.
    matrix = make_matrix(seed=0 if name in ("csr_scalar", "csr_spmm") else number + 1)
    workload = make_workload(
        pattern_from_scipy(matrix),
        operation=corpus.operation,
        element_type=corpus.element_type,
        num_dense_cols=corpus.num_dense_cols,
    )
    program = parse_program(corpus.text, corpus.operation, corpus.element_type)
    return Built(number, corpus, matrix, workload, program)


BUILT = {name: built_of(number, name) for number, name in enumerate([*PROGRAMS, *SHORT_TYPES])}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> HostProgram:
    return build(tmp_path_factory.mktemp("headers"), [built.case() for built in BUILT.values()], MULTIPLY)


def expected_arguments(built: Built, layout: Layout) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The name and the contents of each argument, as the Python builder has them."""
    pattern, columns = pattern_from_scipy(built.matrix), built.workload.num_dense_cols
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, "num_dense_cols": columns}
    element = dtype_of(built.workload.element_type)
    problem = Problem(built.workload, pattern)
    own = bind(built.program, layout, problem, make_device().num_sms).own_scratch
    dense = {"x": pattern.num_cols, "b": pattern.num_cols, "y": pattern.num_rows, "c": pattern.num_rows}
    for argument in built.arguments:
        match argument.role:
            case "size":
                yield argument.name, np.array([{**sizes, **layout.sizes}[argument.name]])
            case "index":
                yield argument.name, layout.indices[argument.name]
            case "values":
                yield argument.name, layout.pack(built.matrix.data.astype(element))
            case "scratch" if argument.name in own:
                yield argument.name, np.zeros(own[argument.name], np.uint8).view(OWN_TYPES[argument.c_type])
            case "scratch":
                yield argument.name, np.zeros(layout.scratch[argument.name] * columns, element)
            case "input" | "output":
                vector = np.zeros(dense[argument.name] * columns, element)
                vector[0] = 7 if argument.role == "input" else 9
                yield argument.name, vector


def test_every_format_is_among_the_programs() -> None:
    assert {built.program.format.name for built in BUILT.values()} == set(FORMATS)


@pytest.mark.parametrize("name", BUILT)
def test_a_header_launches_what_the_python_builder_describes(name: str, program: HostProgram) -> None:
    built = BUILT[name]
    pattern = pattern_from_scipy(built.matrix)
    layout = built.program.format.build(pattern, built.program.parameters)
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, "num_sms": 132}
    sizes |= {"num_dense_cols": built.workload.num_dense_cols, **layout.sizes}
    launches = [launch.resolve(sizes) for launch in built.program.launches]
    check_launches(built.run(program, built.matrix), launches, dict(expected_arguments(built, layout)))


def test_a_header_refuses_another_pattern_and_leaks_nothing(program: HostProgram) -> None:
    printed = BUILT["csr_scalar"].run(program, make_matrix(seed=99))
    assert printed == ["refused sparsesmith: the kernel was tuned for another pattern", "left 0"]


def test_dynamic_shared_memory_is_asked_for(program: HostProgram) -> None:
    built = BUILT["csr_dynamic_shared"]
    first = built.run(program, built.matrix)[0].split()
    pattern = pattern_from_scipy(built.matrix)
    resolved = built.program.launches[0].resolve({"num_rows": pattern.num_rows})
    assert (first[0], int(first[-1])) == ("shared", resolved.shared_bytes)
