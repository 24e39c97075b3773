"""PTX is read as the assembler reads it, printed anew, and what was printed is what is assembled."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.compiling.contract.facts import facts_of, forbidden_instruction, persistent_variables
from services.evaluator.ptx import MalformedPtx, is_read_alike, print_module, read_module
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import parse_program
from tests.kernels.corpus import CorpusProgram, corpus

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str, before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n.reg .b32 %r<9>;\n{body}\nret;\n}}\n"


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


@pytest.mark.parametrize("program", corpus("good"), ids=lambda program: program.name)
def test_what_is_printed_is_read_as_the_same_module(program: CorpusProgram, compiler: Compiler) -> None:
    text = parse_program(extract_program(program.text), program.operation, program.element_type)
    binary = compiler.compile(text.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    assert print_module(read_module(binary.ptx)) == binary.ptx
    declares = any(variable.space == "global" for variable in read_module(binary.ptx).variables)
    assert (b".nv.global" in binary.cubin) == declares


def test_comments_and_strings_that_the_reader_drops_are_not_assembled() -> None:
    text = kernel('mov.u32 %r1, 1; // " /* \n mov.u32 %r2, 2; /* " // */ mov.u32 %r3, 3;')
    printed = print_module(read_module(text))
    assert [line for line in printed.split("\n") if line.startswith("mov")] == [
        f"mov.u32 %r{n}, {n};" for n in (1, 2, 3)
    ]
    assert "/" not in printed


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('.pragma "/*"; mov.u32 %r1, %clock; .pragma "*/";', "pragma"),
        ('.pragma "noinline";', "pragma"),
        ('mov.u32 %r1, "a";', "cannot be read|semicolon|end is missing"),
        ("mov.u32 %r1, 1 /* no end", "comment does not end"),
        ('mov.u32 %r1, 1; "', "string does not end"),
        ('# 1 "kernel.cu"\nmov.u32 %r1, 1;', "character '#'"),
        ("mov.u32 %r1, \\ 1;", "character"),
        ('.include "other.ptx";', "directive|end is missing"),
        ("mov.u32 %r1, (1];", "cannot be read"),
        ("mov.u32 %r1, 1; } .visible .entry k() { ret;", "defines twice"),
        ("mov.u32 %r1, 1; {", "body does not end"),
        ("@%p1 @%p2 mov.u32 %r1, 1;", "cannot be read"),
        (".section .debug_str { .b8 1", "directive|end is missing"),
    ],
)
def test_text_that_could_be_read_otherwise_is_refused(body: str, words: str) -> None:
    with pytest.raises(MalformedPtx, match=words):
        read_module(kernel(body).rstrip("}\n") + "}" if words == "body does not end" else kernel(body))


def test_a_note_of_the_bytes_that_a_load_uses_is_left_out() -> None:
    noted = kernel('.pragma "used_bytes_mask 255";\nmov.u32 %r1, 1;')
    assert print_module(read_module(noted)) == print_module(read_module(kernel("mov.u32 %r1, 1;")))
    assert not is_read_alike(noted)


def test_a_refusal_names_the_line_of_the_program() -> None:
    with pytest.raises(MalformedPtx, match=r"line 12 of the program"):
        read_module(kernel('.loc 1 12 3\n.pragma "other";'))


def test_a_location_does_not_swallow_what_stands_behind_it() -> None:
    module = read_module(kernel(".loc 1 7 3 mov.u32 %r1, %clock;"))
    assert forbidden_instruction(module).startswith("%clock (line 7)")


@pytest.mark.parametrize(
    "declaration",
    [
        "{ .global .align 16 .b8 hidden[64]; mov.u64 %rd1, hidden; }",
        "{.global .b8 hidden[64]; }",
        ".reg .b64 p; .global .u32 hidden; mov.u64 p, hidden;",
    ],
)
def test_a_variable_is_seen_wherever_it_is_declared(declaration: str) -> None:
    assert persistent_variables(read_module(kernel(declaration))) == ("hidden",)


def test_constants_of_headers_that_nothing_names_are_not_printed() -> None:
    variables = ".global .align 1 .b8 unused = 1;\n.global .align 4 .u32 calls;\n.const .align 4 .u32 used = 3;"
    module = read_module(kernel("ld.const.u32 %r1, [used]; st.global.u32 [calls], %r1;", variables))
    assert [variable.name for variable in module.variables] == ["calls", "used"]
    assert persistent_variables(module) == ("calls",)
    assert "unused" not in print_module(module)


def test_a_table_with_initial_contents_is_a_constant_unless_it_is_written_to() -> None:
    table = ".global .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};"
    read = facts_of(read_module(kernel("ld.global.u32 %r1, [table];", table)))
    written = facts_of(read_module(kernel("st.global.u32 [table], 1;", table)))
    assert read.persistent_variables == written.persistent_variables == ()
    assert read.kernels["k"].written_constants == ()
    assert [name for name, _ in written.kernels["k"].written_constants] == ["table"]


def test_facts_survive_the_way_through_json(compiler: Compiler) -> None:
    binary = compiler.compile('extern "C" __global__ void k(float* y) { *y = 1; }', "sm_90")
    assert isinstance(binary, Compiled)
    assert binary.facts == facts_of(read_module(binary.ptx))


def test_a_message_of_the_assembler_names_the_line_of_the_program(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void k(int* y) {\n  asm volatile("add.s32 %0, %0;" : "+r"(y[0]));\n}'
    result = compiler.compile(source, "sm_90")
    assert isinstance(result, CompileError)
    assert "kernel.cu(2)" in result.log


def test_lines_that_look_like_the_assemblers_are_the_compilers(compiler: Compiler) -> None:
    """A warning whose text a program chooses says nothing of its resources."""
    source = """[[deprecated("\\nptxas info    : Function properties for k\\n    99999 bytes stack frame, 0 bytes "
    "spill stores\\ncannot be statically determined")]] __device__ int old() { return 1; }
    extern "C" __global__ void k(int* y) { *y = old(); }"""
    binary = compiler.compile(source, "sm_90")
    assert isinstance(binary, Compiled), binary
    assert binary.resources["k"].local_bytes == 0
    assert not binary.facts.has_unbounded_stack
