"""The operator in JAX on its CPU build, beside JAX's own sparse matrices."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsesmith.errors import InvalidInput
from sparsesmith.operator import Operator
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report

jax = pytest.importorskip("jax", reason="jax is not installed: pip install sparsesmith[jax]")

import jax.numpy as jnp  # noqa: E402
from jax.experimental.sparse import BCOO  # noqa: E402

from sparsesmith.jax import product, sampled  # noqa: E402
from sparsesmith.jax.targets import PRODUCT  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MATRIX = make_matrix()
NNZ = MATRIX.nnz


@pytest.fixture(autouse=True)
def wide_numbers() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def operator_of(program: str | None = None, **workload: Any) -> Operator:
    return Operator(make_report(MATRIX, program, **{"element_type": "float64", **workload}), MATRIX)


def normal(*shape: int, kind: str = "float64") -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), kind)


def theirs(values: Any = None) -> Any:
    rows = np.repeat(np.arange(40), np.diff(MATRIX.indptr))
    places = jnp.asarray(np.stack([rows, MATRIX.indices], 1))
    return BCOO((jnp.asarray(MATRIX.data) if values is None else values, places), shape=MATRIX.shape)


@pytest.mark.parametrize("columns", [(), (5,)])
@pytest.mark.parametrize("workload", [{}, {"operation": "spmm", "num_dense_cols": 3}], ids=["spmv", "spmm"])
def test_products_are_bcoos_compiled_and_not(columns: tuple[int, ...], workload: dict[str, Any]) -> None:
    operator, x, y = operator_of(**workload), normal(30, *columns), normal(40, *columns)
    for each in (lambda f: f, jax.jit):
        found, back = each(lambda x: product(operator, x))(x), each(lambda y: product(operator.T, y))(y)
        np.testing.assert_allclose(found, theirs() @ x, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(back, theirs().T @ y, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("columns", "kind"), [((), "float32"), ((4,), "float64")])
def test_gradients_by_x_and_by_the_values_are_bcoos(columns: tuple[int, ...], kind: str) -> None:
    operator, x, values = operator_of(element_type=kind), normal(30, *columns, kind=kind), normal(NNZ, kind=kind)
    weights = normal(40, *columns, kind=kind)
    ours = jax.jit(jax.grad(lambda x, values: (weights * jnp.sin(product(operator, x, values))).sum(), (0, 1)))
    own = jax.grad(lambda x, values: (weights * jnp.sin(theirs(values) @ x)).sum(), (0, 1))
    error = 1e-12 if kind == "float64" else 2e-5
    for found, expected in zip(ours(x, values), own(x, values), strict=True):
        assert found.dtype == kind
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)
    by_x = jax.vjp(lambda x: product(operator, x), x)[1](weights)[0]
    np.testing.assert_allclose(by_x, theirs().T.astype(kind) @ weights, rtol=error, atol=error)


def test_second_derivatives_and_the_transposes_are_right() -> None:
    operator, y, values = operator_of(), normal(40), normal(NNZ)

    def twice(product: Any) -> Any:
        gradient = jax.grad(lambda values: jnp.sum(product(values) ** 3))
        return jax.jit(jax.grad(lambda values: jnp.sum(gradient(values) ** 2)))(values)

    found, expected = twice(lambda values: product(operator.T, y, values)), twice(lambda values: theirs(values).T @ y)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    x = normal(30)
    dense = np.outer(y, x)
    expected = dense[np.repeat(np.arange(40), np.diff(MATRIX.indptr)), MATRIX.indices]
    np.testing.assert_allclose(sampled(operator, y, x), expected)
    np.testing.assert_allclose(sampled(operator.T, x, y), expected)


def test_a_batch_and_a_solver_of_jax_take_it() -> None:
    operator, batch = operator_of(), normal(6, 30)
    found = jax.jit(jax.vmap(lambda x: product(operator, x)))(batch)
    np.testing.assert_allclose(found, (theirs() @ batch.T).T, rtol=1e-13, atol=1e-13)
    b = normal(30)
    normal_equations = jax.jit(lambda x: product(operator.T, product(operator, x)) + x)
    x, _ = jax.scipy.sparse.linalg.cg(normal_equations, b, tol=1e-12)
    np.testing.assert_allclose(MATRIX.T @ (MATRIX @ np.asarray(x)) + x, b, atol=1e-9)


def test_values_are_those_that_jax_first_saw() -> None:
    operator, x = operator_of(), normal(30)
    before = product(operator, x)
    operator.update_values(5 * MATRIX.data)
    np.testing.assert_array_equal(product(operator, x), before)
    np.testing.assert_allclose(product(operator, x, jnp.asarray(5 * MATRIX.data)), 5 * before)


def test_an_operator_that_is_gone_is_no_longer_read() -> None:
    operator, x = operator_of(), normal(30, 1)
    expected = product(operator, x)
    numbers = {"handle": np.int64(operator.handle), "transposed": np.int64(0)}
    outlives = jax.jit(lambda x: jax.ffi.ffi_call(PRODUCT, jax.ShapeDtypeStruct((40, 1), x.dtype))(x, **numbers))
    np.testing.assert_array_equal(outlives(x), expected)
    del operator
    jax.clear_caches()
    gc.collect()
    with pytest.raises(jax.errors.JaxRuntimeError, match="the operator is gone"):
        jax.block_until_ready(outlives(x))


@pytest.mark.parametrize(
    ("x", "values", "words"),
    [
        (((31,), "float64"), None, "x has shape .31,.: expected .30,."),
        (((30, 2, 2), "float64"), None, "x has shape .30, 2, 2.: expected .30, 2."),
        (((30,), "float32"), None, "x holds float32: expected float64"),
        (((30,), "float64"), ((3,), "float64"), "values has shape .3,."),
        (((30,), "float64"), ((NNZ,), "float32"), "values holds float32"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said(x: Any, values: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        product(operator_of(), jnp.ones(*x), values and jnp.ones(*values))
    with pytest.raises(InvalidInput, match="x is no array of JAX but ndarray"):
        product(operator_of(), np.ones(30))  # type: ignore[arg-type]


def test_fixed_values_and_16_bit_on_the_host_are_refused() -> None:
    fixed = operator_of(CSR_PROGRAM, element_type="float32", values="a" * 64)
    with pytest.raises(InvalidInput, match="values cannot be given"):
        product(fixed, normal(30, kind="float32"), normal(NNZ, kind="float32"))
    with pytest.raises(jax.errors.JaxRuntimeError, match="in float32 and float64"):
        jax.block_until_ready(product(operator_of(element_type="float16"), normal(30, kind="float16")))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_xla_calls_on_a_gpu_launches_on_its_stream(tmp_path: Path) -> None:
    """A frame as XLA fills it, the stand-in driver below: kernels run on the PTX interpreter."""
    flags = ["-std=c11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-isystem", jax.ffi.include_dir()]
    for source, name in (("operator/stand_in_driver.c", "libcuda.so.1"), ("jax/call_frame.c", "call_frame.so")):
        built: list[str | Path] = ["-o", tmp_path / name, f"-Wl,-soname,{name}", ROOT / "tests" / source]
        subprocess.run(["cc", *flags, *built], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    command: list[str | Path] = [sys.executable, "-m", "tests.jax.on_the_stand_in", tmp_path / "call_frame.so"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert (ran.returncode, ran.stdout) == (0, "right\n"), ran.stdout + ran.stderr[-4000:]


@pytest.mark.gpu
def test_on_a_gpu_products_and_gradients_are_bcoos() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX was built without CUDA")
    operator, x, values = operator_of(CSR_PROGRAM, element_type="float32"), normal(30, kind="float32"), normal(NNZ)
    values = values.astype("float32")
    found = jax.jit(jax.grad(lambda x, values: jnp.sum(product(operator, x, values) ** 2), (0, 1)))(x, values)
    expected = jax.grad(lambda x, values: jnp.sum((theirs(values) @ x) ** 2), (0, 1))(x, values)
    for ours, own in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, own, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product(operator, x), theirs().astype("float32") @ x, rtol=1e-4, atol=1e-4)


def test_the_example_runs(tmp_path: Path) -> None:
    operator_of().save(tmp_path / "A.operator")
    command: list[str | Path] = [sys.executable, ROOT / "examples" / "jax_gradient.py", tmp_path / "A.operator"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0 and ran.stdout.startswith("loss "), ran.stderr
