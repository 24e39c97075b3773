"""Registers that some path leaves unset hold nothing of what was there before."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.flow.graph import edges_of
from services.evaluator.compiling.contract.flow.unset import unset_registers, with_registers_set
from services.evaluator.ptx import Function, Module, print_module, read_module
from tests.kernels.corpus import CorpusProgram, corpus

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def function(*statements: str) -> Function:
    """With three registers and predicates of the compiler's."""
    lines = [".reg .pred %p<4>;", ".reg .f32 %f<4>;", *statements, "ret;"]
    text = HEAD + ".visible .entry spmv(.param .u32 a)\n{\n" + "\n".join(lines) + "\n}"
    return read_module(text).functions["spmv"]


def set_and_used(*before: str) -> Function:
    """%f1 is used behind some statements, where %p1 holds something."""
    return function("setp.eq.u32 %p1, 1, 2;", *before, "add.f32 %f2, %f1, %f1;")


@pytest.mark.parametrize(
    "before",
    [
        ["mov.f32 %f1, 0f00000000;"],
        ["@%p1 bra L1;", "mov.f32 %f1, 0f00000000;", "bra L2;", "L1:", "mov.f32 %f1, 0f3F800000;", "L2:"],
        ["@%p1 mov.f32 %f1, 0f00000000;", "@!%p1 mov.f32 %f1, 0f3F800000;"],
        ["@%p1 bra L1;", "mov.f32 %f1, 0f00000000;", "L1:", "@%p1 bra L2;"],
        ["@%p1 bra L1;", "ret;", "L1:", "@%p1 mov.f32 %f1, 0f00000000;"],
    ],
    ids=["before", "on both paths", "under both predicates", "where it is used", "under what is known"],
)
def test_what_every_path_sets_is_set(before: list[str]) -> None:
    end = ["L2:"] if "@%p1 bra L2;" in before else []
    middle = set_and_used(*before) if not end else function("setp.eq.u32 %p1, 1, 2;", *before, USE, *end)
    assert unset_registers(middle) == ({}, {})


USE = "add.f32 %f2, %f1, %f1;"


@pytest.mark.parametrize(
    "before",
    [
        ["@%p1 mov.f32 %f1, 0f00000000;"],
        ["@%p1 bra L1;", "mov.f32 %f1, 0f00000000;", "L1:"],
        ["@%p1 mov.f32 %f1, 0f00000000;", "setp.eq.u32 %p1, 3, 4;", "@!%p1 mov.f32 %f1, 0f00000000;"],
        ["@%p1 mov.f32 %f1, 0f00000000;", "@!%p2 mov.f32 %f1, 0f00000000;", "setp.eq.u32 %p2, 3, 4;"],
        ["L1:", "@%p1 bra L2;", "mov.f32 %f1, 0f00000000;", "bra L1;", "L2:"],
    ],
    ids=["under one", "on one path", "the predicate changes", "of two predicates", "in a loop of no rounds"],
)
def test_what_some_path_leaves_unset_is_zero_from_the_beginning(before: list[str]) -> None:
    whole = set_and_used(*before)
    assert "%f1" in unset_registers(whole).left
    changed, faulty = with_registers_set(Module((), {"spmv": whole}))
    assert faulty == {}
    assert unset_registers(changed.functions["spmv"]).left == {}
    printed = HEAD + print_module(changed)
    assert printed.index("mov.b32 %f1, 0;") < printed.index("setp.eq.u32 %p1, 1, 2;")
    assert read_module(printed).functions["spmv"].instructions[:1] == changed.functions["spmv"].instructions[:1]


def test_a_register_that_nothing_sets_is_a_fault() -> None:
    assert unset_registers(set_and_used()).faulty == {"%f1": 0}


def test_a_register_of_assembly_is_a_fault_where_it_is_not_set_on_every_path() -> None:
    within = ["{", ".reg .f32 t;", "@%p1 mov.f32 t, 0f00000000;", "mov.f32 %f1, t;", "}"]
    assert list(unset_registers(set_and_used(*within)).faulty) == ["t#1"]


def test_a_register_that_assembly_declares_outside_of_scopes_is_a_fault_too() -> None:
    late = [".reg .f32 t;", "@%p1 mov.f32 t, 0f00000000;", "mov.f32 %f1, t;"]
    assert list(unset_registers(set_and_used(*late)).faulty) == ["t"]


def test_a_branch_goes_to_the_label_of_its_own_scope() -> None:
    one = ["{", "AGAIN:", "setp.eq.u32 %p2, 1, 2;", "@%p2 bra AGAIN;", "}"]
    edges = edges_of(function(*one, *one))
    assert [list(each) for each in edges] == [[1], [0, 2], [3], [2, 4], [None]]


def test_an_indexed_branch_goes_where_its_table_says() -> None:
    table = ["L0:", "mov.f32 %f1, 0f00000000;", "T: .branchtargets L0, L1;", "brx.idx %r1, T;", "L1:"]
    assert list(edges_of(function(*table))[1]) == [0, 2]


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def compiled(body: str, compiler: Compiler) -> Compiled:
    source = (
        'extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, '
        f"const int* col_indices, const float* values, const float* x, float* y) {{ {body} }}"
    )
    binary = compiler.compile(source, "sm_90")
    assert isinstance(binary, Compiled), binary
    return binary


ORDINARY = {
    "the best so far": "float best; int at; for (int i = 0; i < nnz; i++) if (i == 0 || x[i] > best) "
    "{ best = x[i]; at = i; } y[0] = best + at;",
    "one lane reads for all": "float v; if (threadIdx.x % 32 == 0) v = x[threadIdx.x]; y[0] = __shfl_sync(~0u, v, 0);",
    "a condition within another": "float v; bool in = threadIdx.x < nnz, odd = x[0] > 0; if (in) v = x[threadIdx.x]; "
    "__syncthreads(); if (in && odd) y[threadIdx.x] = v;",
    "found or not": "float v; bool ok = false; if (values[threadIdx.x] > 0) { v = sqrtf(values[threadIdx.x]); "
    "ok = true; } __syncthreads(); if (ok) y[threadIdx.x] = v;",
}


@pytest.mark.parametrize("body", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_code_that_leaves_a_variable_unset_is_accepted_and_reads_zero(body: str, compiler: Compiler) -> None:
    binary = compiled(body, compiler)
    assert [kernel.faults for kernel in binary.facts.kernels.values()] == [()]
    assert "mov.b32 %" in binary.ptx
    assert unset_registers(read_module(binary.ptx).functions["spmv"]) == ({}, {})


FAST = [program for program in corpus("good") if program.path.stem != "csr_variable_left_unset"]


@pytest.mark.parametrize("program", FAST, ids=lambda program: program.name)
def test_the_code_of_a_good_program_is_left_as_it_is(program: CorpusProgram, compiler: Compiler) -> None:
    binary = compiler.compile(program.text, "sm_90")
    assert isinstance(binary, Compiled), binary
    begins = [each.instructions[0] for each in read_module(binary.ptx).functions.values() if each.instructions]
    assert not [each for each in begins if each.opcode[0] == "mov" and each.operands[1:] == ("0",)]
