"""Compilation on a machine without a GPU, with hostile programs among good ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import (
    MAX_LOG_CHARACTERS,
    Compiled,
    CompileError,
    Compiler,
    compile_program,
)
from services.evaluator.compiling.log import KernelResources, split_log
from services.evaluator.compiling.worker import NICENESS

GOOD = 'extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }'
BROKEN = 'extern "C" __global__ void scale(float* x) {\n  x[0] = unknown_name;\n}'
TEMPLATE_BOMB = """
template <unsigned long P, int N> struct Tree {
    enum { leaves = Tree<2 * P, N - 1>::leaves + Tree<2 * P + 1, N - 1>::leaves };
};
template <unsigned long P> struct Tree<P, 0> { enum { leaves = 1 }; };
extern "C" __global__ void bomb(int* x) { x[0] = Tree<1, 40>::leaves; }
"""
MACRO_BOMB = (
    "#define M0(x) x x x x x x x x x x\n"
    + "".join(f"#define M{i}(x) M{i - 1}(M{i - 1}(x))\n" for i in range(1, 6))
    + 'extern "C" __global__ void bomb(int* x) { M5(x[0]++;) }'
)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    """As patient as a busy machine needs."""
    with Compiler(timeout_s=200) as running:
        yield running


@pytest.fixture(scope="module")
def hurried_compiler() -> Iterator[Compiler]:
    with Compiler(timeout_s=6) as running:
        yield running


def compiled(result: Compiled | CompileError) -> Compiled:
    assert isinstance(result, Compiled), result
    return result


def test_a_program_compiles_to_ptx_and_machine_code_in_one_call(compiler: Compiler) -> None:
    result = compiled(compiler.compile(GOOD, "sm_90"))
    assert ".visible .entry scale(" in result.ptx
    assert ".target sm_90" in result.ptx
    assert result.cubin.startswith(b"\x7fELF")
    assert result.log == ""
    assert result.compile_ms > 0


def test_the_architecture_is_the_one_asked_for(compiler: Compiler) -> None:
    assert ".target sm_80" in compiled(compiler.compile(GOOD, "sm_80")).ptx


def test_resources_are_reported_for_each_kernel(compiler: Compiler) -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(256) tile(float* x) {
        __shared__ float t[256]; t[threadIdx.x] = x[threadIdx.x]; __syncthreads();
        x[threadIdx.x] = t[255 - threadIdx.x];
    }
    extern "C" __global__ void stack(float* x, int n) {
        float local[64]; for (int i = 0; i < 64; i++) local[i * n & 63] = x[i];
        x[0] = local[n];
    }"""
    resources = compiled(compiler.compile(source, "sm_90")).resources
    assert set(resources) == {"tile", "stack"}
    assert resources["tile"].shared_bytes == 1024
    assert resources["tile"].barriers == 1
    assert resources["tile"].registers >= 4
    assert resources["stack"].local_bytes == 256
    assert resources["stack"].spill_bytes == 0


def test_the_assembler_lines_are_read_with_spills_and_constants() -> None:
    log = """kernel.cu(3): warning #177-D: variable "a" was declared but never referenced
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    96 bytes stack frame, 112 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 24 registers, used 2 barriers, 512 bytes smem, 400 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 1.4 ms"""
    messages, resources = split_log(log)
    assert messages == 'kernel.cu(3): warning #177-D: variable "a" was declared but never referenced'
    assert resources == {"k": KernelResources(24, 112, 96, 512, 408, 2)}


@pytest.mark.parametrize(
    "header",
    ["cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h", "cuda/barrier", "cub/warp/warp_reduce.cuh"],
)
def test_the_headers_of_the_contract_are_found(compiler: Compiler, header: str) -> None:
    compiled(compiler.compile(f"#include <{header}>\n{GOOD}", "sm_90"))


def test_compilers_give_way_to_the_devices_process(compiler: Compiler) -> None:
    worker = compiler._idle.get()
    niceness = os.getpriority(os.PRIO_PROCESS, worker._process.pid)
    compiler._idle.put(worker)
    assert niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def test_an_error_names_the_line_of_the_program(compiler: Compiler) -> None:
    result = compiler.compile(BROKEN, "sm_90")
    assert isinstance(result, CompileError)
    assert result.reason == "error"
    assert "kernel.cu(2): error" in result.log
    assert "unknown_name" in result.log


def test_what_the_assembler_refuses_is_told_without_its_statistics(compiler: Compiler) -> None:
    large = "__shared__ float all[13000]; all[threadIdx.x] = 1; __syncthreads(); y[0] = all[threadIdx.x + 1];"
    result = compiler.compile(f'extern "C" __global__ void k(float* y) {{ {large} }}', "sm_90")
    assert isinstance(result, CompileError)
    assert "too much shared data" in result.log
    assert "ptxas info" not in result.log


def test_a_long_log_is_truncated(compiler: Compiler) -> None:
    source = "\n".join(f"int f{i}() {{ return unknown_{'x' * 300}_{i}; }}" for i in range(99))
    result = compiler.compile(source, "sm_90")
    assert isinstance(result, CompileError)
    assert MAX_LOG_CHARACTERS < len(result.log) < MAX_LOG_CHARACTERS + 100


def test_an_unknown_architecture_is_a_compile_error(compiler: Compiler) -> None:
    result = compiler.compile(GOOD, "sm_12345")
    assert isinstance(result, CompileError)
    assert result.reason == "error"


def test_endless_template_recursion_is_an_error(compiler: Compiler) -> None:
    source = "template <int N> struct R { static const int v = R<N + 1>::v; };\nint x = R<0>::v;\n" + GOOD
    result = compiler.compile(source, "sm_90")
    assert isinstance(result, CompileError)


@pytest.mark.parametrize("bomb", [TEMPLATE_BOMB, MACRO_BOMB], ids=["templates", "macros"])
def test_a_compiler_bomb_ends_as_an_error_and_the_next_program_compiles(hurried_compiler: Compiler, bomb: str) -> None:
    started = time.monotonic()
    result = hurried_compiler.compile(bomb, "sm_90")
    assert isinstance(result, CompileError)
    assert result.reason in ("timeout", "crashed", "error")
    assert time.monotonic() - started < 60
    compiled(hurried_compiler.compile(GOOD, "sm_90"))


def test_a_timeout_is_reported_as_such_and_the_worker_is_replaced() -> None:
    with Compiler(timeout_s=0.001) as hurried:
        result = hurried.compile("#include <cub/block/block_scan.cuh>\n" + GOOD, "sm_90")
    assert isinstance(result, CompileError)
    assert result.reason == "timeout"


def test_many_programs_come_back_in_order_and_failures_stay_with_their_program() -> None:
    sources = [GOOD.replace("scale", f"scale{index}") if index != 3 else BROKEN for index in range(8)]
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        results = list(compiler.compile_many(sources, "sm_90"))
    assert [isinstance(result, Compiled) for result in results] == [index != 3 for index in range(8)]
    for index, result in enumerate(results):
        if isinstance(result, Compiled):
            assert list(result.resources) == [f"scale{index}"]


def test_one_program_can_be_compiled_without_a_compiler_object() -> None:
    compiled(compile_program(GOOD, "sm_90"))


@pytest.mark.parametrize(
    "body", ["cudaError_t e = cudaSuccess; y[0] = e;", "cudaTextureObject_t t = 0; y[0] = tex1Dfetch<float>(t, 3);"]
)
def test_a_program_that_names_types_of_the_runtime_compiles(compiler: Compiler, body: str) -> None:
    compiled(compiler.compile(f'extern "C" __global__ void k(float* y) {{ {body} }}', "sm_90"))
