"""Writes to what a program may only read are seen in its machine code."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.flow.addresses import AddressFlow, KernelUses
from services.evaluator.ptx import read_module
from sparsesmith.formats.format import Argument
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType, Operation
from tests.kernels.corpus import CorpusProgram, corpus


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def signature_and_ptx(
    text: str, compiler: Compiler, operation: Operation, element_type: ElementType
) -> tuple[tuple[Argument, ...], str, set[str]]:
    """Arguments, PTX and launched kernels of a program."""
    program = parse_program(text, operation, element_type)
    binary = compiler.compile(program.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    return program.signature, binary.ptx, {launch.kernel for launch in program.launches}


def written_arguments(text: str, compiler: Compiler) -> list[str]:
    signature, ptx, kernels = signature_and_ptx(text, compiler, "spmv", "float32")
    return names_written(signature, ptx, kernels)


def uses_of(ptx: str, kernels: set[str]) -> list[KernelUses]:
    flow = AddressFlow(read_module(ptx))
    return [flow.uses(kernel) for kernel in sorted(kernels)]


def names_written(signature: tuple[Argument, ...], ptx: str, kernels: set[str]) -> list[str]:
    positions = {position for uses in uses_of(ptx, kernels) for position in uses.written}
    return [argument.name for position, argument in enumerate(signature) if position in positions]


@pytest.mark.parametrize("program", corpus("good"), ids=lambda program: program.name)
def test_a_good_program_writes_to_output_and_scratch_alone(program: CorpusProgram, compiler: Compiler) -> None:
    signature, ptx, kernels = signature_and_ptx(program.text, compiler, program.operation, program.element_type)
    written = set(names_written(signature, ptx, kernels))
    roles = {argument.name: argument.role for argument in signature}
    assert {roles[name] for name in written} <= {"output", "scratch"}
    assert "output" in {roles[name] for name in written}
    assert [uses.faults for uses in uses_of(ptx, kernels) if uses.faults] == []


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
    _, ptx, kernels = signature_and_ptx(with_body(body, table), compiler, "spmv", "float32")
    (uses,) = uses_of(ptx, kernels)
    assert (set(uses.written), set(uses.constants), uses.faults) == ({7}, {"table"}, [])


def faults(body: str, compiler: Compiler, before: str = "") -> list[str]:
    _, ptx, kernels = signature_and_ptx(with_body(body, before), compiler, "spmv", "float32")
    return [fault for uses in uses_of(ptx, kernels) for fault in uses.faults]


LAUNDERED = """__device__ __forceinline__ char* laundered(const void* p) {
  unsigned long long bits = (unsigned long long)p;
  unsigned lane = threadIdx.x & 31;
  unsigned low = __ballot_sync(0xffffffffu, (bits >> lane) & 1);
  unsigned high = __ballot_sync(0xffffffffu, (bits >> (32 + lane)) & 1);
  return (char*)((unsigned long long)high << 32 | low); }"""
BY_BRANCHES = """unsigned long long d = (const char*)x - (const char*)y, n = 0;
  for (int b = 0; b < 40; b++) if (d >> b & 1) n += 1ull << b; *(float*)((char*)y + n) = 1;"""
BY_PREDICATES = (
    'unsigned long long n; asm volatile("{ .reg .pred p; .reg .b64 d, b; sub.s64 d, %1, %2; and.b64 b, d, 4096; '
    'setp.ne.u64 p, b, 0; mov.b64 %0, 0; @p add.s64 %0, %0, 4096; }" : "=&l"(n) : "l"(x), "l"(y)); '
    "*(float*)((char*)y + n) = 1;"
)
BY_A_TABLE = "__constant__ int step[2] = {0, 4096};"
BY_HALVES = """unsigned low, high; asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(x));
  *(float*)((unsigned long long)(high ^ 5) << 32 | low) = 1;"""
BY_PARAMETER = """unsigned low, high; asm volatile("ld.param.u32 %0, [spmv_param_6]; ld.param.u32 %1, [spmv_param_6+4];"
  : "=r"(low), "=r"(high)); *(float*)((unsigned long long)high << 32 | low) = 1;"""
BY_SHARED = """__shared__ unsigned halves[2]; *(volatile unsigned long long*)halves = (unsigned long long)x;
  *(float*)((unsigned long long)((volatile unsigned*)halves)[1] << 32 | ((volatile unsigned*)halves)[0]) = 1;"""
BY_SHUFFLE = "unsigned long long d = __shfl_sync(~0u, (unsigned long long)x ^ nnz, 0); *(float*)(d ^ nnz) = 1;"
BY_PLACE = """int lane = threadIdx.x; place[lane] = 0; __syncwarp();
  if (lane == 0) DEED; __syncwarp(); if (place[nnz & 31]) y[0] = x[0];"""
BY_LANE = "int lane = threadIdx.x; if (__shfl_sync(~0u, lane, (int)((size_t)x >> 12) & 31) == 5) y[0] = x[0];"
BY_SEGMENTS = """int lane = threadIdx.x, got; asm volatile("shfl.sync.idx.b32 %0, %1, 1, %2, 0xffffffff;"
  : "=r"(got) : "r"(lane), "r"((int)((size_t)x >> 4) & 0x1f1f)); if (got == 5) y[0] = x[0];"""
BY_LOCAL_PLACE = """int place[32]; for (int i = 0; i < 32; i++) place[i] = 0; place[((size_t)x >> 12) & 31] = 1;
  for (int i = nnz & 1; i < 32; i += 2) if (place[i]) y[i] = x[0];"""
COPY = """asm volatile("cp.async.ca.shared.global [%0], [%1], 4SIZE; cp.async.wait_all;"
  :: "r"((unsigned)__cvta_generic_to_shared(place + threadIdx.x)), "l"(FROM) : "memory");
  if (place[nnz & 31]) y[0] = 1;"""
BY_COPIED_BYTES = COPY.replace("SIZE", ", %2").replace("FROM)", 'values), "r"((int)((size_t)x >> 12) & 4)')
BY_COPIED_PLACE = COPY.replace("SIZE", "").replace("FROM", "row_offsets + (((size_t)x >> 12) & 1)")
BY_STRIDE = """unsigned a, b, c, d, e, f, g, h; asm volatile(
  "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" : "=r"(a), "=r"(b),
  "=r"(c), "=r"(d), "=r"(e), "=r"(f), "=r"(g), "=r"(h) : "r"((unsigned)__cvta_generic_to_shared(place)),
  "r"(16 + ((int)((size_t)x >> 12) & 8))); if (b == 5) y[0] = x[0];"""
BEYOND_A_PARAMETER = 'unsigned low; asm volatile("ld.param.u32 %0, [spmv_param_0+48];" : "=r"(low)); y[0] = low;'
BY_BARRIER = 'asm volatile("bar.arrive %0, 64;" :: "r"(1 + ((int)((size_t)x >> 12) & 1)) : "memory");'
PLACES = "__shared__ __align__(16) int place[32];"
SKIPPED_AT_A_DISTANCE = "if ((const char*)x - (const char*)y == 4096) y[0] = 1; else y[0] = x[0];"
HIGHER_BITS = "if (((size_t)x >> 6) & 7) y[0] = x[0];"
KEPT = "((unsigned*)y)[0] = (unsigned)((unsigned long long)x >> 8);"
SCOPES = (
    'asm volatile("{ .reg .b64 p; mov.b64 p, %0; { .reg .b64 p; mov.b64 p, %1; } st.global.f32 [p], 0f00000000; }" '
    ':: "l"(values), "l"(y));'
)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (LAUNDERED, "*(float*)laundered(x) = 1;"),
        (LAUNDERED, "*(float*)((char*)y + (unsigned long long)laundered((void*)((char*)x - (char*)y))) = 1;"),
        ("", BY_BRANCHES),
        ("", BY_PREDICATES),
        (BY_A_TABLE, "*(float*)((char*)y + step[((const char*)x - (const char*)y) >> 12 & 1]) = 1;"),
        ("", BY_HALVES),
        ("", BY_PARAMETER),
        ("", BY_SHARED),
        ("", BY_SHUFFLE),
        ("", SKIPPED_AT_A_DISTANCE),
        ("", KEPT),
        ("", PLACES + BY_PLACE.replace("DEED", "place[((size_t)x >> 12) & 31] = 1")),
        ("", PLACES + BY_PLACE.replace("DEED", "atomicOr(&place[((size_t)x >> 12) & 31], 1)")),
        ("", BY_LANE),
        ("", BY_SEGMENTS),
        ("", BY_LOCAL_PLACE),
        ("", PLACES + BY_COPIED_BYTES),
        ("", PLACES + BY_COPIED_PLACE),
        ("", PLACES + BY_STRIDE),
        ("", BY_BARRIER),
        ("", HIGHER_BITS),
        ("", "*(float*)0x7f0000000000ull = x[0];"),
        ("", "y[0] = *(const float*)0x7f0000000000ull;"),
        ("", "y[(x + num_cols) - values] = 1;"),
    ],
)
def test_what_tells_where_buffers_lie_is_named(before: str, body: str, compiler: Compiler) -> None:
    assert any(
        ("line " in fault and "address" in fault) or "buffers" in fault for fault in faults(body, compiler, before)
    )


def test_what_lies_behind_a_parameter_is_not_read_through_it(compiler: Compiler) -> None:
    assert "'ld.param.u32 beyond spmv_param_0'" in faults(BEYOND_A_PARAMETER, compiler)[0]


ORDINARY = {
    "lane chosen by numbers": "y[0] = __shfl_sync(~0u, x[threadIdx.x], nnz & 31);",
    "place by alignment": "__shared__ float s[64]; s[threadIdx.x + (((size_t)x >> 2) & 3)] = x[0]; __syncwarp(); "
    "if (s[nnz & 31] > 0) y[0] = s[nnz & 31];",
    "distance within a buffer": "const float* p = x + nnz; y[p - x] = 1;",
    "pointers of one buffer compared": "for (const float* p = x; p < x + nnz; p += 32) y[0] += *p;",
    "alignment": "if (((size_t)(values + nnz) & 15) == 0) y[0] = ((const float4*)(values + nnz))->x;",
    "alignment in words": "switch (((size_t)(values + nnz) >> 2) & 3) { case 0: y[0] = 1; break; case 2: y[0] = 2; }",
    "aligned down": "y[0] = *(const float4*)((size_t)(values + nnz) & ~(size_t)15).x;".replace(").x", "))->x").replace(
        "*(const float4*)(", "((const float4*)("
    ),
    "null": "y[0] = x != nullptr ? x[0] : 0.0f;",
    "chosen": "float* p = nnz > 9 ? y : y + 4; *p = 1;",
    "shuffled": "const float* p = (const float*)__shfl_sync(~0u, (unsigned long long)x, 0); y[0] = *p;",
    "shared by number": "__shared__ float s[64]; unsigned at = (unsigned)__cvta_generic_to_shared(s); "
    'asm volatile("st.shared.f32 [%0], %1;" :: "r"((at ^ 32u) + 4u * threadIdx.x), "f"(x[0])); y[0] = s[3];',
    "structure on the stack": "struct P { const float* in; float* out; }; P all[2] = {{x, y}, {values, y}}; "
    'P* p = &all[nnz & 1]; asm volatile("" : "+l"(p)); *p->out = *p->in;'.replace('\\"', '"'),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_pointers_are_left_alone(name: str, compiler: Compiler) -> None:
    assert faults(ORDINARY[name], compiler) == []


def test_registers_of_inner_scopes_are_their_own(compiler: Compiler) -> None:
    assert written_arguments(with_body(SCOPES), compiler) == ["values"]


@pytest.mark.parametrize("instruction", ["multimem.red.global.add.f32 [%0], 0f00000000", "st.bulk.weak [%0], 8, 0"])
def test_what_is_not_a_known_instruction_is_named(instruction: str) -> None:
    ptx = (
        f".version 9.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 p) {{ .reg .b64 %rd<2>; "
        f"ld.param.u64 %rd1, [p]; {instruction.replace('%0', '%rd1')}; ret; }}"
    )
    (uses,) = uses_of(ptx, {"k"})
    assert uses.written or uses.faults


def test_a_chain_of_many_functions_is_followed_in_time() -> None:
    functions = "".join(
        f".func f{n} (.param .b64 p) {{ .reg .b64 %rd<3>; ld.param.u64 %rd1, [p]; add.s64 %rd2, %rd1, 4;"
        f" {{ .param .b64 param0; st.param.b64 [param0], %rd2; call.uni f{n + 1}, (param0); }} ret; }}\n"
        for n in range(1000)
    )
    last = ".func f1000 (.param .b64 p) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [p]; st.global.b64 [%rd1], 1; ret; }"
    entry = (
        ".visible .entry k (.param .u64 y) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [y]; "
        "{ .param .b64 param0; st.param.b64 [param0], %rd1; call.uni f0, (param0); } ret; }"
    )
    (uses,) = uses_of(functions + last + entry, {"k"})
    assert (set(uses.written), uses.faults) == ({0}, [])


def test_a_program_without_kernels_writes_nothing() -> None:
    assert uses_of(".version 8.0\n.target sm_90\n", set()) == []
