"""Recursion and calls through pointers are found in the PTX, whatever the assembler of a release says of them."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.facts import has_unbounded_stack
from services.evaluator.compiling.contract.flow.addresses import calls_of
from services.evaluator.ptx import Module, read_module

FORWARD = "__device__ __noinline__ float odd(float v, int n);"
EVEN = "__device__ __noinline__ float even(float v, int n) { return n <= 0 ? v : odd(v, n - 3) * v + 1; }"
ODD = "__device__ __noinline__ float odd(float v, int n) { return n <= 0 ? v + 1 : even(v, n - 2) * v + 1; }"
ONE = "__device__ __noinline__ float one(float v, int n) { return v * n; }"
TWO = "__device__ __noinline__ float two(float v, int n) { return one(v, n) + one(v, n + 1); }"
SELF = "__device__ __noinline__ float self(float v, int n) { return n <= 0 ? v : self(v, n - 1) * v + n; }"
BY_NAME = 'extern "C" __global__ void k(float* y, int n) { y[0] = NAME(y[1], n); }'
BY_POINTER = 'extern "C" __global__ void k(float* y, int n) { y[0] = (y[n] > 0 ? one : two)(y[1], n); }'


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(timeout_s=120) as started:
        yield started


def module_of(compiler: Compiler, *lines: str) -> Module:
    binary = compiler.compile("\n".join(lines), "sm_90")
    assert isinstance(binary, Compiled), binary
    return read_module(binary.ptx)


@pytest.mark.parametrize(
    "lines",
    [
        (SELF, BY_NAME.replace("NAME", "self")),
        (FORWARD, EVEN, ODD, BY_NAME.replace("NAME", "odd")),
        (ONE, TWO, BY_POINTER),
    ],
    ids=["calls itself", "two call each other", "through a pointer"],
)
def test_a_stack_without_bound_is_found(lines: tuple[str, ...], compiler: Compiler) -> None:
    binary = compiler.compile("\n".join(lines), "sm_90")
    assert isinstance(binary, Compiled), binary
    assert binary.facts.has_unbounded_stack


def test_functions_that_call_each_other_one_way_have_a_bound(compiler: Compiler) -> None:
    module = module_of(compiler, ONE, TWO, BY_NAME.replace("NAME", "two"))
    assert not has_unbounded_stack(module)
    (two,) = calls_of(module)["k"]
    (one,) = calls_of(module)[two]
    assert calls_of(module)[one] == set()


def test_ptx_without_functions_has_none() -> None:
    assert not has_unbounded_stack(read_module(""))
