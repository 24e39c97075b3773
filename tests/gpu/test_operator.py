"""The operator on a GPU: where its results go, both directions, new values under a captured graph, files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsesmith
from sparsesmith.errors import Conflict, InvalidInput
from sparsesmith.operator import Operator
from sparsesmith.program.starting import starting_formats, starting_program
from sparsesmith_proto.kernel import Baselines
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

MATRIX = make_matrix(300, 200, 0.05)
either_answer = pytest.mark.parametrize("program", [CSR_PROGRAM, None], ids=["kernel", "library"])


def arrays(*shape: int) -> Any:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.get() if hasattr(found, "get") else found, expected, rtol=2e-4, atol=2e-4)


@either_answer
@pytest.mark.parametrize("columns", [(), (1,), (5,)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_scaled_and_added_where_the_caller_wants_it(
    program: str | None, columns: tuple[int, ...], is_transposed: bool
) -> None:
    matrix = MATRIX.T.tocsr() if is_transposed else MATRIX
    operator = Operator(make_report(MATRIX, program), MATRIX)
    operator = operator.T if is_transposed else operator
    x, out = arrays(matrix.shape[1], *columns), arrays(matrix.shape[0], *columns)
    before = out.get()
    method = operator.matmat if columns else operator.matvec
    assert method(x, out=out, alpha=2, beta=-1) is out
    close(out, 2 * (matrix @ x.get()) - before)
    out.fill(np.nan)
    close(method(x, out=out), matrix @ x.get())
    close(method(x.get()), matrix @ x.get())


@pytest.mark.parametrize("columns", [3, 8, 11])
def test_a_kernel_for_eight_columns_takes_any_number(columns: int) -> None:
    report = make_report(MATRIX, starting_program("csr", "spmm", "float32"), operation="spmm", num_dense_cols=8)
    x = arrays(200, columns)
    close(Operator(report, MATRIX).matmat(x), MATRIX @ x.get())


@pytest.mark.parametrize("format_name", starting_formats("spmv"))
def test_values_of_the_device_are_packed_there_and_read_back(format_name: str) -> None:
    operator = Operator(make_report(MATRIX, starting_program(format_name, "spmv", "float32")), MATRIX)
    x, values = arrays(200), arrays(MATRIX.nnz)
    operator @ x
    operator.update_values(values)
    updated = MATRIX.copy()
    updated.data = values.get()
    close(operator @ x, updated @ x.get())
    np.testing.assert_array_equal(operator.to_scipy().data, updated.data)


def test_a_captured_graph_multiplies_with_new_values() -> None:
    cupy = pytest.importorskip("cupy")
    operator = Operator(make_report(MATRIX), MATRIX)
    x, y = arrays(200), arrays(300)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        operator.matvec(x, out=y)
        stream.begin_capture()
        for _ in range(100):
            operator.matvec(x, out=y)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        close(y, MATRIX @ x.get())
        operator.update_values(MATRIX.data * 3)
        graph.launch(stream)
        stream.synchronize()
    close(y, 3 * (MATRIX @ x.get()))


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_capture_without_a_product_before_is_refused_and_leaves_the_operator_whole(is_transposed: bool) -> None:
    cupy = pytest.importorskip("cupy")
    operator = Operator(make_report(MATRIX), MATRIX)
    x, y = arrays(200), cupy.full(300, np.nan, "float32")
    if is_transposed:
        operator @ x  # One direction says nothing of the other.
        operator, x, y = operator.T, arrays(300), cupy.full(200, np.nan, "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        with pytest.raises(Conflict, match="once before the capture") as caught:
            operator.matvec(x, out=y)
        stream.end_capture()
    assert caught.value.field == "operator" and bool(cupy.isnan(y).all())
    expected = (MATRIX.T if is_transposed else MATRIX) @ x.get()
    close(operator.matvec(x, out=y), expected)


def test_a_plain_product_with_out_allocates_nothing() -> None:
    cupy = pytest.importorskip("cupy")
    operator = Operator(make_report(MATRIX), MATRIX)
    x, y = arrays(200), arrays(300)
    operator.matvec(x, out=y)
    hook = cupy.cuda.memory_hooks.LineProfileHook()
    with hook:
        operator.matvec(x, out=y)
    assert not hook._root.children


def test_a_loaded_operator_runs_its_machine_code(tmp_path: Path) -> None:
    from sparsesmith.artifacts.launcher import current_architecture

    report = make_report(MATRIX)
    device = report.device.model_copy(update={"architecture": current_architecture()})
    Operator(report.model_copy(update={"device": device}), MATRIX).save(tmp_path / "A")
    x = arrays(200)
    close(sparsesmith.load(tmp_path / "A") @ x, MATRIX @ x.get())
    other = "sm_75" if device.architecture != "sm_75" else "sm_80"
    elsewhere = report.device.model_copy(update={"architecture": other})
    Operator(report.model_copy(update={"device": elsewhere}), MATRIX).save(tmp_path / "A")
    with pytest.raises(InvalidInput, match=f"machine code for {other}, this GPU is {device.architecture}"):
        sparsesmith.load(tmp_path / "A")
    close(sparsesmith.load(tmp_path / "A", recompile=True) @ x, MATRIX @ x.get())


def test_an_array_of_the_host_is_no_place_for_a_result_of_the_device() -> None:
    operator = Operator(make_report(MATRIX), MATRIX)
    with pytest.raises(InvalidInput, match="out is an array of numpy, x of cupy"):
        operator.matvec(arrays(200), out=np.zeros(300, np.float32))


@either_answer
@pytest.mark.parametrize("name", ["x", "x with out", "out", "values"])
@pytest.mark.parametrize("kind", ["cupy", "torch"])
def test_an_array_on_another_device_is_refused_by_its_name(program: str | None, name: str, kind: str) -> None:
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    operator = Operator(make_report(MATRIX, program), MATRIX)
    close(operator @ arrays(200), MATRIX @ arrays(200).get())

    def on(device: int, length: int) -> Any:
        if kind == "torch":
            return torch.ones(length, device=f"cuda:{device}")
        with cupy.cuda.Device(device):
            return cupy.ones(length, "float32")

    wrong: dict[str, Callable[[], Any]] = {
        "x": lambda: operator.matvec(on(1, 200)),
        "x with out": lambda: operator.matvec(on(1, 200), out=on(1, 300)),
        "out": lambda: operator.matvec(on(0, 200), out=on(1, 300)),
        "values": lambda: operator.update_values(on(1, MATRIX.nnz)),
    }
    with pytest.raises(InvalidInput, match=f"^{name.split()[0]} lies on cuda:1, (x|the matrix) on cuda:0"):
        wrong[name]()
    close(operator @ arrays(200), MATRIX @ arrays(200).get())


@pytest.mark.parametrize("rival", ["cusparse_csr_alg1", "cusparse_csr_alg2", "cusparse_coo_alg1", "cusparse_coo_alg2"])
@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("columns", [0, 8])
def test_a_routine_is_called_by_its_name_into_the_callers_memory_and_captured(
    rival: str, element_type: Any, columns: int
) -> None:
    cupy = pytest.importorskip("cupy")
    workload: dict[str, Any] = {"operation": "spmm", "num_dense_cols": columns} if columns else {}
    report = make_report(MATRIX, None, element_type=element_type, **workload)
    timing = report.baselines.routines[0].model_copy(update={"routine": rival})
    operator = Operator(report.model_copy(update={"baselines": Baselines(default=rival, routines=(timing,))}), MATRIX)
    shape = (columns,) if columns else ()
    x, y = (arrays(length, *shape).astype(element_type) for length in (200, 300))
    method = operator.matmat if columns else operator.matvec
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        method(x, out=y)
        backend: Any = operator._bound.backend(x)
        assert backend._forward._product.routine == rival
        hook = cupy.cuda.memory_hooks.LineProfileHook()
        with hook:
            method(x, out=y)
        assert not hook._root.children
        stream.begin_capture()
        method(x, out=y)
        graph = stream.end_capture()
        operator.update_values(MATRIX.data * 3)
        y.fill(np.nan)
        graph.launch(stream)
        stream.synchronize()
    close(y, 3 * (MATRIX @ x.get()))
    moved = x[::-1].copy()
    close(method(moved, out=y), 3 * (MATRIX @ moved.get()))


def test_kernels_run_through_the_c_library_where_it_can_be_built() -> None:
    from sparsesmith.operator.device import DeviceBackend, Tuned
    from sparsesmith.operator.native.products import NativeProducts
    from sparsesmith.operator.parts import NO_PARTS

    report = make_report(MATRIX)
    backend = DeviceBackend(MATRIX, Tuned(report.workload, CSR_PROGRAM), NO_PARTS)
    assert isinstance(backend._forward, NativeProducts)


def test_a_tuned_transpose_multiplies_and_takes_new_values() -> None:
    transpose = MATRIX.T.tocsr()
    backward = make_report(transpose, starting_program("sell", "spmv", "float32"))
    operator = Operator(make_report(MATRIX), MATRIX, transposed=backward)
    y = arrays(300)
    close(operator.T @ y, transpose @ y.get())
    held = operator.device_bytes
    operator.update_values(arrays(MATRIX.nnz))
    updated = MATRIX.copy()
    updated.data = arrays(MATRIX.nnz).get()
    close(operator.T @ y, updated.T @ y.get())
    assert operator.device_bytes == held > 8 * MATRIX.nnz


def test_tensors_have_gradients_and_captured_graphs_replay_with_the_same_bits() -> None:
    torch = pytest.importorskip("torch")
    from sparsesmith.torch import SparseLayer

    operator = Operator(make_report(MATRIX), MATRIX)
    layer = SparseLayer(operator).cuda()
    x = torch.randn(200, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    close(x.grad.cpu().numpy(), MATRIX.T @ np.ones(300))
    rows = np.repeat(np.arange(300), np.diff(MATRIX.indptr))
    assert layer.values.grad is not None
    close(layer.values.grad.cpu().numpy(), x.detach().cpu().numpy()[MATRIX.indices] + 0 * rows)
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        results = [compiled(x).clone() for _ in range(5)]
        for found in results:
            torch.testing.assert_close(found, layer(x))


@pytest.mark.parametrize("columns", [None, 1, 7, 64])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_by_the_values_is_that_of_the_host(columns: int | None, transposed: bool) -> None:
    torch = pytest.importorskip("torch")
    from sparsesmith.operator.sampling import sampled_by_kernel
    from sparsesmith.torch import SparseLayer

    operator = Operator(make_report(MATRIX), MATRIX)
    layer = SparseLayer(operator.T if transposed else operator)
    rows, cols = operator.shape[::-1] if transposed else operator.shape
    shape = () if columns is None else (columns,)
    x, weights = torch.randn(cols, *shape), torch.randn(rows, *shape)
    (layer(x) * weights).sum().backward()
    by_values = layer.values.grad
    assert by_values is not None
    expected = by_values.clone()
    layer.cuda()
    layer.values.grad = None
    (layer(x.cuda()) * weights.cuda()).sum().backward()
    by_values = layer.values.grad
    assert by_values is not None
    torch.testing.assert_close(by_values.cpu(), expected, rtol=1e-4, atol=1e-5)
    left, right = (x, weights) if transposed else (weights, x)
    found = sampled_by_kernel(operator.handle, left.cuda(), right.cuda())
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_opcheck_finds_nothing_in_products_of_the_gpu(is_transposed: bool) -> None:
    torch = pytest.importorskip("torch")
    import sparsesmith.torch  # noqa: F401 - registers the operators

    program = starting_program("csr", "spmv", "float64")
    operator = Operator(make_report(MATRIX, program, element_type="float64"), MATRIX)
    rows, cols = MATRIX.shape
    x = torch.randn(rows if is_transposed else cols, dtype=torch.float64, device="cuda", requires_grad=True)
    values = torch.randn(MATRIX.nnz, dtype=torch.float64, device="cuda", requires_grad=True)
    operator @ torch.ones(cols, dtype=torch.float64, device="cuda")
    for given in (None, values):
        torch.library.opcheck(torch.ops.sparsesmith.product, (x, given, operator.handle, is_transposed))


def test_a_graph_of_torch_captures_products() -> None:
    torch = pytest.importorskip("torch")
    operator = Operator(make_report(MATRIX), MATRIX)
    x, y = torch.randn(200, device="cuda"), torch.empty(300, device="cuda")
    operator.matvec(x, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            operator.matvec(x, out=y, alpha=2)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        close(y.cpu().numpy(), 2 * (MATRIX @ x.cpu().numpy()))


def test_solvers_of_cupyx_take_the_operator() -> None:
    """By shape, dtype, matvec and rmatvec, as `aslinearoperator` finds them."""
    cupy, linalg = pytest.importorskip("cupy"), pytest.importorskip("cupyx.scipy.sparse.linalg")
    line = scipy.sparse.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(400, 400), format="csr")
    program = starting_program("csr", "spmv", "float64")
    operator = Operator(make_report(line, program, element_type="float64"), line)
    b = cupy.ones(400)
    wrapped = linalg.aslinearoperator(operator)
    close(wrapped.matvec(b), line @ np.ones(400))
    close(wrapped.rmatvec(b), line.T @ np.ones(400))
    for solver in (linalg.cg, linalg.gmres):
        x, trouble = solver(operator, b)
        assert trouble == 0
        np.testing.assert_allclose((operator @ x).get(), np.ones(400), atol=1e-3)
    close(linalg.svds(operator, k=2, return_singular_vectors=False), linalg.svds(wrapped, k=2)[1].get())
