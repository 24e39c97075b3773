"""Writes to what a program may only read are seen in its machine code."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.written import Written, written_by
from sparsesmith.formats.format import Argument
from sparsesmith.program.program import parse_program
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.message import ElementType, Operation
from tests.kernels.corpus import CorpusProgram, corpus


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1) as compiler:
        yield compiler


def signature_and_ptx(
    text: str, compiler: Compiler, operation: Operation, element_type: ElementType
) -> tuple[tuple[Argument, ...], str, set[str]]:
    """Arguments, PTX and launched kernels of a program."""
    program = parse_program(text, operation, element_type)
    binary = compiler.compile(program.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    signature = signature_of(program.format, program.parameters, operation, element_type)
    return signature, binary.ptx, {launch.kernel for launch in program.launches}


def written_arguments(text: str, compiler: Compiler) -> list[str]:
    signature, ptx, kernels = signature_and_ptx(text, compiler, "spmv", "float32")
    return names_written(signature, ptx, kernels)


def names_written(signature: tuple[Argument, ...], ptx: str, kernels: set[str]) -> list[str]:
    written = written_by(ptx).parameters
    positions = {position for kernel in kernels for position in written[kernel]}
    return [argument.name for position, argument in enumerate(signature) if position in positions]


@pytest.mark.parametrize("program", corpus("good"), ids=lambda program: program.name)
def test_a_good_program_writes_to_output_and_scratch_alone(program: CorpusProgram, compiler: Compiler) -> None:
    signature, ptx, kernels = signature_and_ptx(program.text, compiler, program.operation, program.element_type)
    written = set(names_written(signature, ptx, kernels))
    roles = {argument.name: argument.role for argument in signature}
    assert {roles[name] for name in written} <= {"output", "scratch"}
    assert "output" in {roles[name] for name in written}


def with_body(body: str, before: str = "") -> str:
    return f"""//@ format csr
//@ launch spmv grid=1 block=32
{before}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* x, float* y) {{ {body} }}
"""


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("y[threadIdx.x] = x[0];", ["y"]),
        ("((float*)x)[threadIdx.x] = 1;", ["x"]),
        ("float* p = (float*)values; for (int i = 0; i < nnz; i++) *p++ = 0;", ["values"]),
        ("atomicAdd((float*)&values[col_indices[0]], 1.0f); y[0] = 1;", ["values", "y"]),
        ("atomicExch((int*)row_offsets, 1);", ["row_offsets"]),
        ("*(float4*)(x + 4) = make_float4(0, 0, 0, 0);", ["x"]),
        ("y[col_indices[threadIdx.x]] = values[row_offsets[threadIdx.x]] * num_rows;", ["y"]),
        ("const float* p = nnz > 9 ? x : y; ((float*)p)[0] = 1;", ["x", "y"]),
        ("const float* p = y; for (int i = 0; i < nnz; i++) { ((float*)p)[i] = 1; p = x; }", ["x", "y"]),
        ("y[(x + num_cols) - values] = 1;", []),
        ("__shared__ float s[32]; s[threadIdx.x] = x[0]; __syncthreads(); y[0] = s[31 - threadIdx.x];", ["y"]),
        ('asm volatile("st.global.f32 [%0+8], 0f00000000;" :: "l"(x));', ["x"]),
        ('asm volatile("red.global.add.f32 [%0], 0f00000000;" :: "l"(values));', ["values"]),
    ],
)
def test_the_arguments_written_to_are_named(body: str, written: list[str], compiler: Compiler) -> None:
    assert written_arguments(with_body(body), compiler) == written


POKE = "__device__ __noinline__ void poke(float* place, float value) { *place = value; }"
LARGER = "__device__ __noinline__ const float* larger(const float* p, const float* q) { return *p > *q ? p : q; }"
PAIR = """struct Pair { const float* in; float* out; };
__device__ __noinline__ void put(Pair pair, float value) { *pair.out = value * *pair.in; }"""
EITHER = "__device__ __noinline__ float* either(float* one, float* other, int n) { return n > 9 ? one : other; }"


@pytest.mark.parametrize(
    ("before", "body", "written"),
    [
        (POKE, "poke(y + num_rows, 1);", ["y"]),
        (POKE, "poke((float*)x, 1); poke(y, x[0]);", ["x", "y"]),
        (EITHER, "*either((float*)values, y, nnz) = 1;", ["values", "y"]),
        (PAIR, "put(Pair{x, y}, 1.0f);", ["y"]),
        (PAIR, "put(Pair{x, (float*)values}, 1.0f);", ["values"]),
        (LARGER + POKE, "poke(y, *larger(larger(x, values), x));", ["y"]),
        ("", 'asm volatile("{.reg .b64 p; add.s64 p, %0, 4; st.global.f32 [p+4], 0f00000000;}" :: "l"(x));', ["x"]),
        (
            "",
            'asm volatile("{.reg .b32 l, h; .reg .b64 p; mov.b64 {l, h}, %0; mov.b64 p, {l, h}; '
            'st.global.f32 [p], 0f00000000;}" :: "l"(values));',
            ["values"],
        ),
        (
            "",
            "__shared__ alignas(16) float s[4]; "
            'asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" :: "l"(x), '
            '"r"((unsigned)__cvta_generic_to_shared(s)));',
            ["x"],
        ),
    ],
)
def test_pointers_are_followed_through_calls_and_assembly(
    before: str, body: str, written: list[str], compiler: Compiler
) -> None:
    assert written_arguments(with_body(body, before), compiler) == written


def test_constants_written_to_are_named(compiler: Compiler) -> None:
    table = "__constant__ int table[2] = {1, 2}; __constant__ int other = 3;"
    body = """unsigned long long place;
      asm volatile("mov.u64 %0, %1;" : "=l"(place) : "l"(&table[1]));
      *(volatile int*)place = other; y[0] = table[0];"""
    _, ptx, _ = signature_and_ptx(with_body(body, table), compiler, "spmv", "float32")
    assert written_by(ptx) == Written({"spmv": [7]}, ["table"])


def test_a_program_without_kernels_writes_nothing() -> None:
    assert written_by(".version 8.0\n.target sm_90\n") == Written({}, [])
