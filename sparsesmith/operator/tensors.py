"""Two custom operators of torch, which this imports; each is made of the other's derivatives.

    product(x, values, handle, transposed)    y = A x or A^T x, x of shape [n] or [n, columns]
    sampled(y, x, handle)                     for each nonzero (i, j) of A the sum over columns of y[i] x[j]

Arguments are tensors and numbers, so that graphs can be compiled and captured; which matrix is meant says a number that
an `Operator` has for as long as it lives. With `values` the product is that of a matrix with these, whatever the
operator held before; on a GPU it holds them afterwards.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from sparsesmith.errors import InvalidInput
from sparsesmith.operator.registry import pattern_of, registered
from sparsesmith.operator.sampling import sampled_by_kernel

if TYPE_CHECKING:
    from sparsesmith.operator.operator import Operator

Tensor = torch.Tensor


def product(operator: "Operator", x: Tensor, values: Tensor | None = None) -> Tensor:
    """A x, differentiable by x and by `values`, where they are given: those of all nonzeros, in the order of CSR.

    Raises InvalidInput for a tensor of another type or shape than the operator's.
    """
    if values is not None:
        found: Tensor = torch.ops.sparsesmith.product.default(x, values, operator.handle, operator.is_transposed)
        return found
    return _product_of_own(x, operator.handle, operator.is_transposed)


def _product_of_own(x: Tensor, handle: int, transposed: bool) -> Tensor:
    """With the operator's own values. By torch's operator only where somebody hears of it: a call of one costs the host
    more than the product itself."""
    found: Tensor
    if not _is_unseen(x):
        found = torch.ops.sparsesmith.product.default(x, None, handle, transposed)
    elif x.requires_grad and torch.is_grad_enabled():
        found = _Followed.apply(x, handle, transposed)  # type: ignore[no-untyped-call]
    else:
        found = registered(handle).tensor_product(x, None, transposed=transposed)
    return found


def _is_unseen(x: Tensor) -> bool:
    """Whether no compiler, tracer, mode, transform or profiler is at work, and x is a tensor as it lies in memory."""
    return (
        not torch.compiler.is_compiling()
        and type(x) in _PLAIN
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and not torch._C._is_tracing()
        and not torch._C._autograd._profiler_enabled()
        and not x.is_neg()
    )


_PLAIN = frozenset({Tensor, torch.nn.Parameter})


class _Followed(torch.autograd.Function):
    """The product that autograd follows, by x: what `register_autograd` makes of torch's operator, without that one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, handle: int, transposed: bool) -> Tensor:
        ctx.handle, ctx.transposed = handle, transposed
        found: Tensor = registered(handle).tensor_product(x, None, transposed=transposed)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return _product_of_own(gradient.contiguous(), ctx.handle, not ctx.transposed), None, None


_OPERATORS = torch.library.Library("sparsesmith", "DEF")
"""Defined and implemented one by one: a call of what `torch.library.custom_op` makes costs three times as much."""
_OPERATORS.define("product(Tensor x, Tensor? values, int handle, bool transposed) -> Tensor")
_OPERATORS.define("sampled(Tensor y, Tensor x, int handle) -> Tensor")


def _product(x: Tensor, values: Tensor | None, handle: int, transposed: bool) -> Tensor:
    found: Tensor = registered(handle).tensor_product(x, values, transposed=transposed)
    return found


def _product_shape(x: Tensor, values: Tensor | None, handle: int, transposed: bool) -> Tensor:
    rows, cols, nnz = registered(handle).extents
    given, results = (rows, cols) if transposed else (cols, rows)
    _check(x, "x", (given,), x.shape[:1], handle)
    if values is not None:
        _check(values, "values", (nnz,), values.shape, handle)
    return x.new_empty((results, *x.shape[1:]))


def _product_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, int, bool], output: Tensor) -> None:
    x, values, ctx.handle, ctx.transposed = inputs
    ctx.save_for_backward(x if values is not None else None, values)


def _product_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    x, values = ctx.saved_tensors
    gradient = gradient.contiguous()
    by_x = by_values = None
    if ctx.needs_input_grad[0]:
        by_x = torch.ops.sparsesmith.product.default(gradient, values, ctx.handle, not ctx.transposed)
    if ctx.needs_input_grad[1]:
        left, right = (x, gradient) if ctx.transposed else (gradient, x)
        by_values = torch.ops.sparsesmith.sampled.default(left, right, ctx.handle)
    return by_x, by_values, None, None


def _sampled(y: Tensor, x: Tensor, handle: int) -> Tensor:
    if y.is_cuda and (found := sampled_by_kernel(handle, y, x)) is not None:
        return found  # type: ignore[no-any-return]
    rows, cols = pattern_of(handle, y.device)
    products = y.index_select(0, rows) * x.index_select(0, cols)
    return products.sum(1) if products.ndim == 2 else products


def _sampled_shape(y: Tensor, x: Tensor, handle: int) -> Tensor:
    return x.new_empty((registered(handle).extents[2],))


def _sampled_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    y, x, ctx.handle = inputs
    ctx.save_for_backward(y, x)


def _sampled_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
    y, x = ctx.saved_tensors
    gradient = gradient.contiguous()
    by_y = torch.ops.sparsesmith.product.default(x, gradient, ctx.handle, False)
    return by_y, torch.ops.sparsesmith.product.default(y, gradient, ctx.handle, True), None


def _register(name: str, run: Any, shape: Any, backward: Any, context: Any) -> None:
    _OPERATORS.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"sparsesmith::{name}", shape, lib=_OPERATORS)
    torch.library.register_autograd(f"sparsesmith::{name}", backward, setup_context=context, lib=_OPERATORS)


_register("product", _product, _product_shape, _product_backward, _product_context)
_register("sampled", _sampled, _sampled_shape, _sampled_backward, _sampled_context)


def _check(tensor: Tensor, name: str, expected: tuple[int, ...], found: Any, handle: int) -> None:
    """Raises InvalidInput."""
    element_type = registered(handle).element_type
    if tuple(found) != expected:
        raise InvalidInput(f"{name} begins with {tuple(found)}: expected {expected}", field=name, limit=expected)
    if tensor.dtype != getattr(torch, element_type):
        raise InvalidInput(f"{name} holds {tensor.dtype}: expected {element_type}", field=name, limit=element_type)
