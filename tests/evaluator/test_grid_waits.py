"""A kernel that starts early touches no vector before it has waited: proved on its machine code."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.breach import breach
from sparsesmith.program.program import parse_program

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
FIRST = f"if (threadIdx.x == 0) {WAIT} __syncthreads();"


def program(body: str, before: str = "", restrict: str = "") -> str:
    return f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 dependency=programmatic
{before}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* {restrict} x, float* {restrict} y) {{
  int row = blockIdx.x * 128 + threadIdx.x;
  int begin = row < num_rows ? row_offsets[row] : 0, end = row < num_rows ? row_offsets[row + 1] : 0;
  float sum = 0;
  {body}
}}
"""


SUM = "for (int j = begin; j < end; j++) sum += values[j] * x[col_indices[j]]; if (row < num_rows) y[row] = sum;"


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def reason(text: str, compiler: Compiler) -> str:
    parsed = parse_program(text, "spmv", "float32")
    binary = compiler.compile(parsed.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    return breach(parsed, binary)


HELPER = f"__device__ __noinline__ void wait() {{ {WAIT} }}"
SECOND_RESULT = """asm volatile("{ .reg .pred p, q; setp.eq.u32 q, %0, 0; setp.ne.u32 p|q, %1, -5; "
  "@q griddepcontrol.wait; }"
  :: "r"((int)threadIdx.x), "r"(row) : "memory"); __syncthreads();"""
HALF_OF_A_PAIR = """asm volatile("{ .reg .pred q; .reg .b32 a, b; .reg .b64 w; mov.u32 a, %0; mov.b64 w, {%1, %1}; "
  "mov.b64 {b, a}, w; setp.eq.u32 q, a, 0; @q griddepcontrol.wait; }"
  :: "r"((int)threadIdx.x), "r"(row + 7) : "memory"); __syncthreads();"""
INNER_SCOPE = """asm volatile("{ .reg .pred q; setp.eq.u32 q, %0, 0; { .reg .pred q, z; setp.eq.u32 z|q, %1, %1; "
  "@q griddepcontrol.wait; } }" :: "r"((int)threadIdx.x), "r"(row) : "memory"); __syncthreads();"""
READER = "__device__ __noinline__ float first(const float* p) { return *p; }"


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", WAIT + SUM),
        ("", FIRST + SUM),
        ("", f"if (threadIdx.x < 32) {WAIT} __syncthreads();" + SUM),
        ("", f"if (row >= num_rows) {{ {WAIT} return; }} {WAIT} {SUM}"),
        ("", f"if (row >= num_rows) return; {WAIT} {SUM}"),
        ("", f"if (nnz > 9) {WAIT} else {WAIT} {SUM}"),
        (HELPER, "wait();" + SUM),
        (READER, f"float v = first(values); {WAIT} sum = first(x) * 0 * v; {SUM}"),
    ],
)
def test_a_kernel_that_waits_on_every_path_is_within_the_contract(before: str, body: str, compiler: Compiler) -> None:
    assert reason(program(body, before), compiler) == ""


@pytest.mark.parametrize(
    ("before", "body", "name"),
    [
        ("", f"if (nnz > 9) {WAIT} {SUM}", "x"),
        ("", f"if (threadIdx.x == 0) {WAIT} {SUM}", "x"),
        ("", f"if (threadIdx.x == 5) {WAIT} __syncthreads(); {SUM}", "x"),
        ("", f"if (threadIdx.x == 0) return; if (threadIdx.x == 1) {WAIT} __syncthreads(); {SUM}", "x"),
        ("", f"if (threadIdx.x == 0 && nnz > 9) {WAIT} __syncthreads(); {SUM}", "x"),
        ("", f"float v = ((volatile const float*)x)[0]; if (v != v) {WAIT} {SUM}", "x"),
        ("", f"if (row < num_rows) y[row] = 0; {WAIT} {SUM}", "y"),
        ("", f'asm volatile("prefetch.global.L1 [%0];" :: "l"(x)); {WAIT} {SUM}', "x"),
        (READER, f"sum = first(x); {WAIT} {SUM}", "x"),
        ("", SECOND_RESULT + SUM, "x"),
        ("", HALF_OF_A_PAIR + SUM, "x"),
        ("", INNER_SCOPE + SUM, "x"),
    ],
)
def test_a_vector_touched_before_the_wait_is_named(before: str, body: str, name: str, compiler: Compiler) -> None:
    assert f": {name} is touched too early" in reason(program(body, before), compiler)


def test_a_constant_load_of_a_vector_is_named_wherever_it_stands(compiler: Compiler) -> None:
    assert "may move up past griddepcontrol.wait" in reason(program(WAIT + SUM, restrict="__restrict__"), compiler)
