"""Products as JAX's functions: pure, traced, differentiated any number of times in reverse."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsesmith.jax.targets import PRODUCT, ready
from sparsesmith.operator import Operator
from sparsesmith.operator.arrays import refused
from sparsesmith.operator.operator import Bound
from sparsesmith.operator.registry import registered


def product(operator: Operator, x: jax.Array, values: jax.Array | None = None) -> jax.Array:
    """A x for x of shape [cols] or [cols, columns], differentiable by x and by `values`, where they are given: those of
    all nonzeros of A in the order of CSR.

    A function of its arguments: without `values` it multiplies with those that the operator held when JAX first met it.
    A compiled function is good for as long as its operator lives. Raises InvalidInput, naming the argument, for one of
    another type or shape.
    """
    bound, transposed = registered(operator.handle), operator.is_transposed
    _check(x, "x", operator, (operator.shape[1], *x.shape[1:2]))
    if values is None:
        ready(bound, with_values=False)
        return _product(bound, transposed, x)
    if bound.has_fixed_values:
        raise refused("values", "cannot be given: the kernel was tuned for the matrix's own", "values", "fixed")
    ready(bound, with_values=True)
    _check(values, "values", operator, (operator.nnz,))
    return _product_with(bound, transposed, x, values)


def sampled(operator: Operator, y: jax.Array, x: jax.Array) -> jax.Array:
    """For each nonzero (i, j) of A, in the order of CSR, the sum over the columns of y[i] x[j]: what products give as
    gradient by the values. Two gathers and a product, not fused."""
    if operator.is_transposed:
        y, x = x, y
    return _sampled(registered(operator.handle), y, x)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _product(bound: Bound, transposed: bool, x: jax.Array) -> jax.Array:
    return _by_blocks(bound, transposed, x)


def _product_forward(bound: Bound, transposed: bool, x: jax.Array) -> tuple[jax.Array, None]:
    return _product(bound, transposed, x), None


def _product_backward(bound: Bound, transposed: bool, kept: None, gradient: jax.Array) -> tuple[jax.Array]:
    return (_product(bound, not transposed, gradient),)


_product.defvjp(_product_forward, _product_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _product_with(bound: Bound, transposed: bool, x: jax.Array, values: jax.Array) -> jax.Array:
    return _by_blocks(bound, transposed, x, values)


def _product_with_forward(
    bound: Bound, transposed: bool, x: jax.Array, values: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product_with(bound, transposed, x, values), (x, values)


def _product_with_backward(
    bound: Bound, transposed: bool, kept: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, values = kept
    by_values = _sampled(bound, x, gradient) if transposed else _sampled(bound, gradient, x)
    return _product_with(bound, not transposed, gradient, values), by_values


_product_with.defvjp(_product_with_forward, _product_with_backward)


def _sampled(bound: Bound, y: jax.Array, x: jax.Array) -> jax.Array:
    rows = np.repeat(np.arange(bound.extents[0], dtype=np.int32), np.diff(bound.matrix.indptr))
    products = y[rows] * x[bound.matrix.indices]
    return products.sum(1) if products.ndim == 2 else products


def _by_blocks(bound: Bound, transposed: bool, x: jax.Array, *values: jax.Array) -> jax.Array:
    """As many columns at once as the kernel takes, the last block filled up with zeros."""
    workload, results = bound.report.workload, bound.extents[1 if transposed else 0]
    width = 1 if workload.operation == "spmv" else workload.num_dense_cols
    wide = x.reshape(x.shape[0], -1)
    count = -(-wide.shape[1] // width)
    filled = jnp.pad(wide, ((0, 0), (0, count * width - wide.shape[1])))
    if count == 1:
        found = _launched(bound, transposed, filled, *values)
    else:
        blocks = filled.reshape(-1, count, width).swapaxes(0, 1)
        each = jax.lax.map(lambda block: _launched(bound, transposed, block, *values), blocks)
        found = each.swapaxes(0, 1).reshape(results, count * width)
    return found[:, : wide.shape[1]].reshape(results, *x.shape[1:])


def _launched(bound: Bound, transposed: bool, x: jax.Array, *values: jax.Array) -> jax.Array:
    result = jax.ShapeDtypeStruct((bound.extents[1 if transposed else 0], x.shape[1]), x.dtype)
    call = jax.ffi.ffi_call(PRODUCT, result, vmap_method="sequential")
    found: jax.Array = call(x, *values, handle=np.int64(bound.handle), transposed=np.int64(transposed))
    return found


def _check(array: Any, name: str, operator: Operator, expected: tuple[int, ...]) -> None:
    if not isinstance(array, jax.Array):
        raise refused(name, f"is no array of JAX but {type(array).__name__}", type(array).__name__, "jax.Array")
    if array.dtype != operator.dtype:
        reason = f"holds {array.dtype}: expected {operator.dtype}"
        hint = " (jax.config.update('jax_enable_x64', True))" if operator.dtype == np.float64 else ""
        raise refused(name, reason + hint, str(array.dtype), str(operator.dtype))
    if array.shape != expected:
        raise refused(name, f"has shape {array.shape}: expected {expected}", array.shape, expected)
