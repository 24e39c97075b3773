"""What parse_program accepts, gives and refuses. Whole programs of each kind are in tests/kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS, complete_parameters
from sparsesmith.program.directives import launch_names
from sparsesmith.program.program import parse_program
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS, ElementType, Operation
from tests.matrix.patterns import parameters_of
from tests.program.programs import BODY, SIGNATURE, make_program


def refusal_of(program: str, operation: Operation = "spmv", element_type: ElementType = "float32") -> InvalidProgram:
    with pytest.raises(InvalidProgram) as refusal:
        parse_program(program, operation, element_type)
    return refusal.value


def test_a_program_has_its_format_its_launches_and_a_source_with_the_same_lines() -> None:
    text = make_program(format_="//@ format csr index=i32")
    program = parse_program(text, "spmv", "float32")
    assert (program.text, program.format.name, program.parameters) == (text, "csr", {"index": "i32"})
    assert [launch.kernel for launch in program.launches] == ["spmv"]
    assert program.source == "\n\n" + text.split("\n", 2)[2]


def test_programs_that_differ_in_directives_only_have_equal_sources() -> None:
    other = make_program(launch="//@ launch spmv grid=num_rows block=64")
    assert parse_program(other, "spmv", "float32").source == parse_program(make_program(), "spmv", "float32").source


def test_line_ends_of_windows_are_read() -> None:
    text = make_program().replace("\n", "\r\n")
    assert parse_program(text, "spmv", "float32").source == parse_program(make_program(), "spmv", "float32").source


@given(st.data())
def test_every_signature_of_the_catalogue_is_accepted_as_written(data: st.DataObject) -> None:
    format_ = data.draw(st.sampled_from(list(FORMATS.values())))
    parameters = data.draw(parameters_of(format_))
    operation: Operation = data.draw(st.sampled_from(["spmv", "spmm"]))
    element_type: ElementType = data.draw(st.sampled_from(["float32", "float64"]))
    arguments = signature_of(format_, parameters, operation, element_type)
    restrict = data.draw(st.sampled_from([" ", " __restrict__ "]))
    declared = ", ".join(
        f"{argument.c_type}{restrict if '*' in argument.c_type else ' '}{argument.name}" for argument in arguments
    )
    written = " ".join(f"{name}={value}" for name, value in parameters.items())
    text = make_program(format_=f"//@ format {format_.name} {written}", signature=declared)
    assert parse_program(text, operation, element_type).parameters == parameters


def test_the_tail_depends_on_operation_and_element_type() -> None:
    spmv = signature_of(FORMATS["ell"], {}, "spmv", "float64")
    spmm = signature_of(FORMATS["ell"], {}, "spmm", "float32")
    assert [f"{a.c_type} {a.name}" for a in spmv[-3:]] == ["const double* values", "const double* x", "double* y"]
    assert [f"{a.c_type} {a.name}" for a in spmm[-3:]] == ["const float* b", "float* c", "int num_dense_cols"]


def test_launch_names_are_the_sizes() -> None:
    names = launch_names(FORMATS["ell"], complete_parameters(FORMATS["ell"], {}))
    assert names == ("num_rows", "num_cols", "nnz", "width", "stride", "num_sms", "num_dense_cols")


@pytest.mark.parametrize(
    "head",
    [
        'extern "C" __global__ void spmv',
        'extern "C" __global__ void __launch_bounds__(256) spmv',
        'extern "C" __global__ __launch_bounds__(256, 2) void spmv',
        'extern "C" __launch_bounds__(128 * (1 + 1)) __global__ void spmv',
        'extern "C"\n__global__ void\nspmv',
        'extern "C" /* the kernel */ __global__ void spmv',
    ],
)
def test_the_head_may_be_written_in_these_ways(head: str) -> None:
    parse_program(make_program(head=head), "spmv", "float32")


@pytest.mark.parametrize(
    "declared",
    [
        "float const* values",
        "const float *values",
        "const float* __restrict__ values",
        "const float *__restrict values",
        "const float* const values",
        "const float* const __restrict__ values",
    ],
)
def test_an_argument_may_be_written_in_these_ways(declared: str) -> None:
    parse_program(make_program(signature=SIGNATURE.replace("const float* values", declared)), "spmv", "float32")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("const double* values", "argument 6 must be `const float* values`, `const double* values` is declared"),
        ("float* values", "argument 6 must be `const float* values`, `float* values` is declared"),
        ("const float& values", "argument 6 must be `const float* values`, `const float& values` is declared"),
        ("const float** values", "argument 6 must be `const float* values`, `const float** values` is declared"),
        ("const float* vals", "argument 6 must be `const float* values`, `const float* vals` is declared"),
        ("const float*", "argument 6 must be `const float* values`, `const float*` is declared"),
        ("const float* values = 0", "argument 6 must be `const float* values`, "),
        ("", "argument 6 must be `const float* values`, "),
    ],
)
def test_a_wrong_argument_is_named_with_what_it_must_be(declared: str, message: str) -> None:
    refusal = refusal_of(make_program(signature=SIGNATURE.replace("const float* values", declared)))
    assert message in refusal.message
    assert (refusal.field, refusal.limit) == ("spmv.values", "const float* values")


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void spmv",
        'extern "C" __device__ void spmv',
        'extern "C" __global__ int spmv',
        'extern "C" static __global__ void spmv',
        'extern "C++" __global__ void spmv',
        'extern "C" __global__ void spmw',
    ],
)
def test_another_head_is_no_kernel(head: str) -> None:
    assert "0 definitions" in refusal_of(make_program(head=head)).message


def test_two_definitions_are_refused() -> None:
    kernel = make_program().split("\n", 2)[2]
    assert "2 definitions" in refusal_of(make_program(before=kernel)).message


def test_a_kernel_that_is_not_launched_may_have_any_arguments() -> None:
    parse_program(make_program(before='extern "C" __global__ void other(int n) {}\n'), "spmv", "float32")


@pytest.mark.parametrize("text", ["", "\x00", make_program() + "\x00", make_program() + "\ud800"])
def test_text_that_is_no_text_is_refused(text: str) -> None:
    refusal_of(text)


def test_a_program_beyond_the_size_limit_is_refused_with_it() -> None:
    refusal = refusal_of(make_program() + " " * MAX_PROGRAM_CHARACTERS)
    assert refusal.limit == str(MAX_PROGRAM_CHARACTERS)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_before_a_kernel_is_compiled_code_or_refused(text: str) -> None:
    try:
        parse_program(make_program(before=text + "\n"), "spmv", "float32")
    except InvalidProgram as refusal:
        assert refusal.message


ALLOWED = [
    "static __device__ float twice(float a) { return 2 * a; }",
    "__device__ __forceinline__ auto twice(float a) -> float { return 2 * a; }",
    "template <typename T> __device__ inline T twice(T a) { return a + a; }",
    "__device__ __noinline__ void copy(int* a, const int* b) { *a = *b; }",
    "struct Sum { float a; __device__ Sum() : a(0) {} __device__ Sum(const Sum&) = default; };",
    "struct Add { __device__ float operator()(float a, float b) const { return a + b; } };",
    "struct Box { float a[4]; __device__ float& operator[](int i) { return a[i]; } };",
    "__constant__ int table[3] = {1, 2, 3};",
    "__constant__ const float half = 0.5f;",
    "static constexpr int width = 32;",
    "#define WIDTH 32\nstatic constexpr int width = WIDTH;\n__device__ int f() { return WIDTH; }",
    "#define LOG(...) __VA_ARGS__",
    "template <typename A, typename B> __device__ Pair<A, B> pair(A a, B b) { return {a, b}; }",
    "__device__ void f() { static __shared__ float tile[32]; }",
    "__host__ __device__ int one() { return 1; }",
    "__device__ constexpr float tenth = 0.1f;",
    "constexpr __device__ int sizes[2] = {1, 2};",
    "static const int width = 32;",
    "extern __shared__ float tile[];",
    "#define WIDTH 32\n#undef WIDTH",
    "#pragma unroll 4",
    "#include <cub/warp/warp_reduce.cuh>",
    '#include "cuda_fp16.h" // half',
    "#if __CUDA_ARCH__ >= 900\n#else\n#endif",
    "using Real = float;\ntypedef int Index;\nenum { kWidth = 4 };",
    "namespace parts { __device__ int one() { return 1; } }",
    '__device__ void wait() { asm volatile("cp.async.wait_all;\\n" ::: "memory"); }',
    '__device__ int lane() { int l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l; }',
    '__device__ void p(int a) { asm("{ .reg .pred q;\\n\\t setp.ne.b32 q, %0, 0; }" :: "r"(a)); }',
    '__device__ float4 l(const float4* p) { float4 v; asm("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" '
    ': "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p)); return v; }',
]


@pytest.mark.parametrize("before", ALLOWED)
def test_the_tools_of_the_trade_are_allowed(before: str) -> None:
    parse_program(make_program(before=before + "\n"), "spmv", "float32")


REFUSED = [
    "__device__ int calls;",
    "__device__ int calls = 0;",
    "__device__ int calls(0);",
    "__device__ int calls{0};",
    "__device__ int a(0), b(0);",
    "int __device__ calls;",
    "static __device__ float cache[4];",
    "inline __device__ float cache[4];",
    "__device__ float* const cache = nullptr, *other;",
    "__device__ const float cache[4];",
    "__device__ int (*handler)(int);",
    "__device__ __align__(16) float cache[4];",
    "__device__ struct { int calls; } state;",
    "__device__ alignas(16) decltype(1) calls;",
    "extern __device__ int calls;",
    "template <int N> __device__ int calls;",
    "__constant__ float table[4];",
    "__managed__ int calls = 0;",
    "__device__ void f() { static int calls; calls++; }",
    "__device__ void f() { static int calls = 0; calls++; }",
    "__device__ void f() { static const int* last = nullptr; }",
    "__device__ void f() { static const int a = 1, *last = nullptr; }",
    "__device__ int f(int);",
    "__device__ int f() { return clock(); }",
    "__device__ int f() { return __clock64(); }",
    "#define NOW clock64",
    "__device__ int f() { return now##64(); }",
    "#define __syncthreads()",
    "#define float half",
    "#define asm(x)",
    '#define A(x) asm(x)',
    '__device__ void f() { asm("mov.u64 %0, %clock64;"); }',
    '__device__ void f() { asm volatile(TEXT); }',
    '__device__ void f() { asm("mov.u32 %0, %%" "warp" "id;"); }',
    '__device__ void f() { asm(".global .u32 calls;"); }',
    '__device__ void f() { asm("nop; .file 1 \\"/etc/hostname\\""); }',
    '__device__ void f() { asm("call vprintf, (%0, %1);"); }',
    '__device__ void f() { asm("\\x25clock"); }',
    "__device__ int* f() { return new int; }",
    "__device__ void f(int* p) { free(p); }",
    "__device__ void f() { cudaDeviceSynchronize(); }",
    "__device__ void f() { printf(0); }",
    "__device__ void f() { assert(0); }",
    "thread_local int calls = 0;",
    "#pragma nv_diag_suppress 177",
    "#pragma once_more",
    "#warning x",
    "#ident x",
    "#include <cuda_runtime.h>",
    "#include <cub/device/device_spmv.cuh>",
    "#include <cub/block/../../secret.cuh>",
    "#include <cuda_fp16.h> extra",
    '#include "/etc/passwd"',
    "#include",
    "#elifdef X",
    "__attribute__((device)) int calls;",
    "__location__(device) int calls;",
    "_CCCL_DEVICE int calls;",
    "#define BOTH(x) x int calls;\nBOTH(__device__) __device__ void f() {}",
    "#define BOTH(x, y) x int calls; y\nBOTH(__device__, void f() {})",
    "#define BOTH(x, y) namespace n x int calls; y\nBOTH({ __device__, void f() {} })",
    "#define ALSO int calls;\n__device__ ALSO void f() {}",
    "#define ALSO int calls;\n__device__ constexpr ALSO int a = 1;",
    "#define ALSO 1, *last\n__device__ const int a = ALSO;",
    '__device__ void f() { static constexpr char n[] = "globaltimer"; asm("mov.u64 %0, %%%1;" : "=l"(t) : "C"(n)); }',
    "__device__ unsigned f() { return cuda::ptx::get_sreg_smid(); }",
]  # fmt: skip


@pytest.mark.parametrize("before", REFUSED)
def test_state_clocks_launches_and_files_are_refused(before: str) -> None:
    assert refusal_of(make_program(before=before + "\n")).message.startswith("line ")


HOSTILE = [
    "static " * 9000,
    "static constexpr int a{1} " * 2500,
    'extern "C" ' * 5000,
    "#define A\\\n\n" * 5000,
    "/*" * 30000,
    "asm(" * 15000,
    "__device__ f(" * 4000,
    "(" * 60000,
    '"\\"' * 15000,
]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("before", HOSTILE, ids=[text[:12] for text in HOSTILE])
def test_a_hostile_text_is_judged_in_time(before: str) -> None:
    try:
        parse_program(make_program(before=before + "\n"), "spmv", "float32")
    except InvalidProgram as refusal:
        assert refusal.message


def test_a_refusal_names_the_line_of_the_program() -> None:
    refusal = refusal_of(make_program(body=BODY + "  long long now = clock64();\n"))
    assert refusal.message.startswith("line 6: clock64 is not allowed")
