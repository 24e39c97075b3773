"""Artifacts of kernels that are valid for fixed values: they build the same arrays, and refuse other values."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.artifacts.cpp_header import (
    cpp_header,
    cpp_parameters,
    format_code,
    values_fingerprint,
    workload_name,
)
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.errors import InvalidMatrix, InvalidProgram, Unavailable
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.values.compressed import compressed
from sparsesmith.formats.values.storage import VALUE_STORAGES
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.operator import Operator
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType
from tests.artifacts.answers import CSR_PROGRAM, make_device, make_matrix, make_report, make_workload

SOURCES = Path(sys.modules["sparsesmith.artifacts.cpp_header"].__file__ or "").parent / "cpp"

MAIN = """
#include <cstdio>
int main() {
  Csr csr;
  int nnz = 0;
  if (std::scanf("%d %d %d", &csr.num_rows, &csr.num_cols, &nnz) != 3) return 1;
  csr.row_offsets.resize(csr.num_rows + 1);
  csr.col_indices.resize(nnz);
  std::vector<Element> values(nnz);
  double value;
  for (int& word : csr.row_offsets) if (std::scanf("%d", &word) != 1) return 1;
  for (int& word : csr.col_indices) if (std::scanf("%d", &word) != 1) return 1;
  for (Element& word : values) { if (std::scanf("%lf", &value) != 1) return 1; word = Element(value); }
  std::printf("fingerprint %llu\\n", static_cast<unsigned long long>(values_fingerprint(values.data(), nnz)));
  const Layout layout = BUILD(csr, Parameters{PARAMETERS});
  std::vector<Element> packed(layout.value_sources.empty() ? nnz : layout.value_sources.size());
  for (std::size_t slot = 0; slot < packed.size(); ++slot) {
    const int source = layout.value_sources.empty() ? static_cast<int>(slot) : layout.value_sources[slot];
    packed[slot] = source < 0 ? Element(0) : values[source];
  }
  for (const auto& [name, bytes] : ENCODE(packed, layout, csr.num_rows)) {
    std::printf("%s", name.c_str());
    for (unsigned char byte : bytes) std::printf(" %d", byte);
    std::printf("\\n");
  }
}
"""

ENCODERS = {
    "dictionary code=u8": "encode_dictionary<std::uint8_t>",
    "dictionary code=u16": "encode_dictionary<std::uint16_t>",
    "rows code=u8": "encode_rows<std::uint8_t>",
    "rows code=u16": "encode_rows<std::uint16_t>",
    "constant": "encode_constant",
    "float32": "encode_float32",
}
UNSIGNED_ZERO = next(
    line
    for line in (SOURCES / "kernel.hpp.in").read_text().splitlines()
    if line.startswith("inline Element unsigned_zero")
)
CHOICES: list[tuple[str, dict[str, ParameterValue], str, ElementType]] = [
    ("csr", {}, "dictionary code=u8", "float32"),
    ("sell", {"slice": 4, "sigma": 16}, "dictionary code=u16", "float64"),
    ("dia", {"slice": 32}, "dictionary code=u8", "float32"),
    ("dia", {}, "rows code=u8", "float64"),
    ("ell", {}, "rows code=u16", "float32"),
    ("csr", {}, "constant", "float32"),
    ("sell", {"slice": 8}, "constant", "float64"),
    ("bsr", {"block_rows": 2, "block_cols": 3}, "float32", "float64"),
]


def few_values(constant: bool = False) -> scipy.sparse.csr_matrix:
    matrix = scipy.sparse.random(37, 29, 0.2, random_state=1, format="csr")
    matrix.data = np.full(matrix.nnz, 2.5) if constant else np.round(matrix.data * 4) / 4 - 0.5
    return matrix


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize(("name", "given", "stored_as", "element_type"), CHOICES)
def test_the_header_stores_values_as_the_python_builder_does(
    name: str, given: dict[str, ParameterValue], stored_as: str, element_type: ElementType, tmp_path: Path
) -> None:
    format_ = compressed(format_named(name), VALUE_STORAGES[stored_as])
    parameters = complete_parameters(format_, given)
    matrix = few_values(constant=stored_as == "constant")
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, element_type)
    layout = format_.build_with(pattern, parameters, values)
    element = {"float32": "float", "float64": "double"}[element_type]
    listed = cpp_parameters(format_, format_.layout_parameters(parameters))
    layout_code, values_code = ((SOURCES / f"{part}.hpp").read_text() for part in ("layout", "values"))
    types = f"\nusing Element = {element};\nusing Sum = Element;\n{UNSIGNED_ZERO}\n"
    code = layout_code + format_code(name) + types + values_code
    code += MAIN.replace("BUILD", f"build_{name}").replace("PARAMETERS", listed).replace("ENCODE", ENCODERS[stored_as])
    (tmp_path / "main.cpp").write_text(code)
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Werror", "-o", tmp_path / "main", tmp_path / "main.cpp"], check=True
    )
    words = [*matrix.shape, matrix.nnz, *matrix.indptr, *matrix.indices, *map(repr, values.array.tolist())]
    done = subprocess.run(
        [tmp_path / "main"], input=" ".join(map(str, words)), capture_output=True, text=True, check=True
    )
    lines = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert int(lines.pop("fingerprint")) == values_fingerprint(values)
    assert lines, "nothing is stored"
    for array_name, listed_bytes in lines.items():
        expected = layout.indices[array_name]
        np.testing.assert_array_equal(
            np.array(listed_bytes.split(), np.uint8).view(expected.dtype), expected, err_msg=array_name
        )


def fixed_report(matrix: scipy.sparse.csr_matrix, program: str | None = CSR_PROGRAM) -> Any:
    return make_report(matrix, program, values=fixed_values(matrix.data, "float32").digest)


def loaded(text: str) -> Any:
    module = ModuleType("loader")
    exec(compile(text, "loader.py", "exec"), module.__dict__)
    return module


def test_a_loader_refuses_other_values_before_a_gpu_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    matrix = make_matrix()
    text = python_loader(fixed_report(matrix))
    assert "the pattern and the values that this kernel was tuned for" in text
    module = loaded(text)
    with pytest.raises(Unavailable):
        module.load(matrix)
    with pytest.raises(InvalidMatrix, match="other values than the kernel was tuned with") as caught:
        module.load(matrix * 2)
    assert caught.value.field == "values"


def test_a_tuned_kernel_takes_no_new_values_but_the_librarys_answer_does() -> None:
    matrix = make_matrix()
    kernel = Operator(fixed_report(matrix), matrix)
    kernel.update_values(matrix.copy())
    with pytest.raises(InvalidMatrix, match="valid for those only"):
        kernel.update_values(matrix * 2)
    Operator(fixed_report(matrix, None), matrix).update_values(matrix * 2)


def test_a_header_says_what_it_is_valid_for_and_has_a_name_of_its_own() -> None:
    matrix = few_values()
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, "float32")
    free = make_workload(pattern)
    fixed = free.model_copy(update={"values": values.digest})
    header = cpp_header(CSR_PROGRAM, fixed, pattern, make_device(), values)
    assert "Valid for the values that it was tuned with only" in header
    assert f"values_fingerprint(values, nnz_) != {values_fingerprint(values)}ull" in header
    assert workload_name(free) != workload_name(fixed)
    assert "values_fingerprint" not in cpp_header(CSR_PROGRAM, free, pattern, make_device())


def test_a_header_of_a_compressed_program_cannot_be_made_without_the_values() -> None:
    matrix = few_values()
    pattern = pattern_from_scipy(matrix)
    program = CSR_PROGRAM.replace("//@ format csr\n", "//@ format csr\n//@ values dictionary code=u8\n")
    program = program.replace(
        "const float* values", "int num_distinct, const unsigned char* value_codes, const float* dictionary"
    ).replace("values[j]", "dictionary[value_codes[j]]")
    workload = make_workload(pattern, values=fixed_values(matrix.data, "float32").digest)
    with pytest.raises(InvalidProgram, match="values=fixed"):
        cpp_header(program, workload, pattern, make_device())
    header = cpp_header(program, workload, pattern, make_device(), fixed_values(matrix.data, "float32"))
    assert "encode_dictionary<std::uint8_t>(packed" in header


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_headers_of_compressed_programs_compile_together(tmp_path: Path) -> None:
    matrix = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(64, 64), format="csr")
    pattern = pattern_from_scipy(matrix)
    includes = ""
    family = FIXED_FAMILIES["dia_rows"]
    for number, element_type in enumerate(family.element_types):
        values = fixed_values(matrix.data, element_type)
        workload = Workload(pattern=pattern.digest, operation="spmv", element_type=element_type, values=values.digest)
        choice = {name: spec.default for name, spec in family.parameters.items()}
        header = cpp_header(family.render(choice, element_type), workload, pattern, make_device(), values)
        (tmp_path / f"kernel{number}.hpp").write_text(header)
        includes += f'#include "kernel{number}.hpp"\n'
        includes += f"sparsesmith_{workload_name(workload)}::Kernel* kernel{number}();\n"
    (tmp_path / "main.cu").write_text(includes)
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall", "-c", "-o", str(tmp_path / "main.o")]
    run = subprocess.run([*command, str(tmp_path / "main.cu")], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
