"""What a user takes home gives the right product on the user's GPU: the Python loader, `kernel @ x`, the C++ header."""

import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.artifacts.cpp_header import cpp_header, workload_name
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.errors import InvalidInput, InvalidMatrix
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operator import Operator
from sparsesmith_proto.kernel import Workload
from tests.artifacts.answers import CSR_PROGRAM, make_device, make_matrix, make_report
from tests.kernels.corpus import CorpusProgram, corpus

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

GOOD = corpus("good")
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

MAIN = """
#include <cstdio>
#include <cstdlib>
template <typename Word>
std::vector<Word> read(const char* name, std::size_t count) {
  std::vector<Word> words(count);
  std::FILE* file = std::fopen(name, "rb");
  if (!file || std::fread(words.data(), sizeof(Word), count, file) != count) std::abort();
  std::fclose(file);
  return words;
}
int main() {
  using namespace NAMESPACE;
  const int num_rows = NUM_ROWS, num_cols = NUM_COLS, nnz = NNZ, num_dense_cols = NUM_DENSE_COLS;
  const auto row_offsets = read<int>("row_offsets", num_rows + 1), col_indices = read<int>("col_indices", nnz);
  const auto values = read<Element>("values", nnz), input = read<Element>("input", num_cols * num_dense_cols);
  Element *device_input, *device_output;
  if (cudaMalloc(&device_input, sizeof(Element) * input.size())) return 3;
  if (cudaMalloc(&device_output, sizeof(Element) * num_rows * num_dense_cols)) return 3;
  cudaMemcpy(device_input, input.data(), sizeof(Element) * input.size(), cudaMemcpyHostToDevice);
  cudaMemset(device_output, 0xff, sizeof(Element) * num_rows * num_dense_cols);
  const std::vector<Element> zeros(nnz);
  Kernel kernel(num_rows, num_cols, row_offsets.data(), col_indices.data(), zeros.data());
  kernel.set_values(values.data());
  for (int time = 0; time < 2; ++time) kernel(device_input, device_output);
  std::vector<Element> output(num_rows * num_dense_cols);
  if (cudaMemcpy(output.data(), device_output, sizeof(Element) * output.size(), cudaMemcpyDeviceToHost)) return 4;
  std::FILE* file = std::fopen("output", "wb");
  std::fwrite(output.data(), sizeof(Element), output.size(), file);
  std::fclose(file);
}
"""


def workload_of(program: CorpusProgram) -> dict[str, Any]:
    return {
        "operation": program.operation,
        "element_type": program.element_type,
        "num_dense_cols": program.num_dense_cols,
    }


def make_operand(workload: Workload, num_cols: int) -> np.ndarray[Any, Any]:
    shape = (num_cols,) if workload.operation == "spmv" else (num_cols, workload.num_dense_cols)
    return np.random.default_rng(3).standard_normal(shape).astype(workload.element_type)


def assert_product(found: Any, matrix: Any, operand: np.ndarray[Any, Any]) -> None:
    """Within the evaluator's own bound: a share of |A| |x|, component by component."""
    exact = scipy.sparse.csr_matrix(matrix.astype(operand.dtype), dtype=np.float64)
    assert found.dtype == operand.dtype
    bound = TOLERANCE[operand.dtype.name] * (abs(exact) @ np.abs(operand.astype(np.float64)))
    assert np.all(np.abs(found.astype(np.float64) - exact @ operand.astype(np.float64)) <= bound)


def load(text: str, matrix: Any) -> Any:
    module = ModuleType("loader")
    exec(compile(text, "loader.py", "exec"), module.__dict__)
    return module.load(matrix)


@pytest.mark.parametrize("program", GOOD, ids=lambda program: program.name)
def test_the_python_loader_multiplies(program: CorpusProgram) -> None:
    matrix = make_matrix(300, 200, 0.05)
    report = make_report(matrix, program.text, **workload_of(program))
    kernel = load(python_loader(report), matrix.tocoo())
    operand = make_operand(report.workload, 200)
    for _ in range(2):
        assert_product(kernel(operand), matrix, operand)


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_the_loader_of_the_library_multiplies(operation: str) -> None:
    matrix = make_matrix(300, 200, 0.05)
    report = make_report(matrix, None, operation=operation, num_dense_cols=5 if operation == "spmm" else 1)
    operand = make_operand(report.workload, 200)
    assert_product(load(python_loader(report), matrix)(operand), matrix, operand)


@pytest.mark.parametrize("program", [CSR_PROGRAM, None])
def test_the_result_is_of_the_operands_kind(program: str | None) -> None:
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    matrix = make_matrix()
    kernel = Operator(make_report(matrix, program), matrix)
    x = np.random.default_rng(1).standard_normal(30).astype(np.float32)
    assert_product(kernel @ x, matrix, x)
    on_device = kernel @ cupy.asarray(x)
    assert isinstance(on_device, cupy.ndarray)
    assert_product(on_device.get(), matrix, x)
    for device in ("cpu", "cuda"):
        tensor = kernel @ torch.from_numpy(x).to(device)
        assert (tensor.device.type, tensor.dtype) == (device, torch.float32)
        assert_product(tensor.cpu().numpy(), matrix, x)


@pytest.mark.parametrize("program", [CSR_PROGRAM, None])
def test_work_on_a_stream_of_torch_is_waited_for(program: str | None) -> None:
    torch = pytest.importorskip("torch")
    matrix = make_matrix()
    kernel = Operator(make_report(matrix, program), matrix)
    x = torch.randn(30, device="cuda")
    kernel @ x  # Compiles.
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        late = torch.zeros(30, device="cuda")
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        result = (kernel @ late).clone()
    torch.cuda.synchronize()
    assert_product(result.cpu().numpy(), matrix, x.cpu().numpy())


@pytest.mark.parametrize("program", [CSR_PROGRAM, None])
def test_new_values_are_used(program: str | None) -> None:
    matrix = make_matrix()
    kernel = Operator(make_report(matrix, program), matrix)
    x = np.random.default_rng(1).standard_normal(30).astype(np.float32)
    assert_product(kernel @ x, matrix, x)
    kernel.update_values(matrix * 3)
    assert_product(kernel @ x, matrix * 3, x)
    with pytest.raises(InvalidMatrix, match="another pattern"):
        kernel.update_values(make_matrix(seed=1))


@pytest.mark.parametrize("program", [CSR_PROGRAM, None])
@pytest.mark.parametrize("shape", [(29,), (31, 1), ()])
def test_an_operand_of_a_wrong_shape_is_refused(program: str | None, shape: tuple[int, ...]) -> None:
    matrix = make_matrix()
    kernel = Operator(make_report(matrix, program), matrix)
    with pytest.raises(InvalidInput, match="expected"):
        kernel @ np.zeros(shape, np.float32)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("program", GOOD, ids=lambda program: program.name)
def test_the_cpp_header_multiplies(program: CorpusProgram, tmp_path: Path) -> None:
    matrix = make_matrix(300, 200, 0.05)
    pattern = pattern_from_scipy(matrix)
    report = make_report(matrix, program.text, **workload_of(program))
    workload = report.workload
    operand = make_operand(workload, 200)
    main = MAIN.replace("NAMESPACE", f"sparsesmith_{workload_name(workload)}")
    for name, number in (
        ("NUM_ROWS", pattern.num_rows),
        ("NUM_COLS", pattern.num_cols),
        ("NNZ", pattern.nnz),
        ("NUM_DENSE_COLS", workload.num_dense_cols),
    ):
        main = main.replace(f"= {name}", f"= {number}")
    (tmp_path / "main.cu").write_text(cpp_header(program.text, workload, pattern, make_device()) + main)
    pattern.row_offsets.tofile(tmp_path / "row_offsets")
    pattern.col_indices.tofile(tmp_path / "col_indices")
    matrix.data.astype(workload.element_type).tofile(tmp_path / "values")
    operand.tofile(tmp_path / "input")
    subprocess.run(["nvcc", "-std=c++17", "-arch=native", "-o", "program", "main.cu"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "program"], cwd=tmp_path, check=True)
    found = np.fromfile(tmp_path / "output", operand.dtype).reshape(300, *operand.shape[1:])
    assert_product(found, matrix, operand)
