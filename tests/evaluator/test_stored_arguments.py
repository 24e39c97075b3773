"""Writes to what a program may only read are seen in its machine code."""

from collections.abc import Iterator

import pytest

from services.evaluator.compilation import Compiled, Compiler
from services.evaluator.stored_arguments import written_parameters
from sparsesmith.domain.formats.format import Argument
from sparsesmith.domain.program import parse_program
from sparsesmith.domain.signature import signature_of
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


def written_by(text: str, compiler: Compiler) -> list[str]:
    signature, ptx, kernels = signature_and_ptx(text, compiler, "spmv", "float32")
    return names_written(signature, ptx, kernels)


def names_written(signature: tuple[Argument, ...], ptx: str, kernels: set[str]) -> list[str]:
    written = written_parameters(ptx)
    positions = {position for kernel in kernels for position in written[kernel]}
    return [argument.name for position, argument in enumerate(signature) if position in positions]


@pytest.mark.parametrize("program", corpus("good"), ids=lambda program: program.name)
def test_a_good_program_writes_to_output_and_scratch_alone(program: CorpusProgram, compiler: Compiler) -> None:
    signature, ptx, kernels = signature_and_ptx(program.text, compiler, program.operation, program.element_type)
    written = set(names_written(signature, ptx, kernels))
    roles = {argument.name: argument.role for argument in signature}
    assert {roles[name] for name in written} <= {"output", "scratch"}
    assert "output" in {roles[name] for name in written}


def with_body(body: str) -> str:
    return f"""//@ format csr
//@ launch spmv grid=1 block=32
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
        ("const float* p = nnz > 9 ? x : y; ((float*)p)[0] = 1;", []),
        ("__shared__ float s[32]; s[threadIdx.x] = x[0]; __syncthreads(); y[0] = s[31 - threadIdx.x];", ["y"]),
        ('asm volatile("st.global.f32 [%0+8], 0f00000000;" :: "l"(x));', ["x"]),
        ('asm volatile("red.global.add.f32 [%0], 0f00000000;" :: "l"(values));', ["values"]),
    ],
)
def test_the_arguments_written_to_are_named(body: str, written: list[str], compiler: Compiler) -> None:
    assert written_by(with_body(body), compiler) == written


def test_a_program_without_kernels_writes_nothing() -> None:
    assert written_parameters(".version 8.0\n.target sm_90\n") == {}
