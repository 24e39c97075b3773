"""Constants of programs get the memory space that nvcc asks for, and nothing else changes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sparsesmith.artifacts.device_constants import with_device_constants
from tests.kernels.corpus import corpus

MARKED = {
    "tables": "{}constexpr float one[4] = {{1, 2}}; {}const int two[] = {{3}};",
    "several of one declaration": "{}constexpr int a = 1, b[2] = {{1, 2}};",
    "behind other specifiers": (
        "static {}constexpr int a[2] = {{}};\ninline {}const int b = 1;\nint {}const c[1] = {{1}};"
    ),
    "without =": "{}constexpr S s{{3}};\n{}constexpr S t(3);",
    "alignment": "alignas(16) {}constexpr char bytes[16] = {{}};",
    "templates": "template <typename T, int N = 2> {}constexpr T pi[N] = {{T(3.14)}};",
    "template arguments": "Pair<const int, A<B<C<const int>>>> {}const p = {{}};",
    "beside its struct": "struct X {{ int a[2]; }} {}const x = {{{{1, 2}}}};\n{}const struct {{ int a; }} y = {{1}};",
    "namespaces": "namespace {{ namespace a::b {{ {}constexpr int q[1] = {{1}}; }} }}\n{}constexpr int r[1] = {{1}};",
    "linkage": 'extern "C" {{ {}const int q[1] = {{1}}; }}',
    "behind a function": "__device__ int f(const int* x) {{ return *x; }}\n{}constexpr int r[1] = {{1}};",
    "behind operators": (
        "__device__ bool operator<(const S& a, const S& b) {{ return a.v < b.v; }}\n"
        "__device__ bool operator==(const S& a, const S& b) {{ return true; }}\n{}constexpr int r[1] = {{1}};"
    ),
    "calls in the value": "{}constexpr int r = f([] {{ const int a = 1; return a; }}());\n{}const int s = r;",
    "line splices": "#define A 1 + \\\n  2\nint a = A; \\\n{}con\\\nst int b[1] = {{1}}; \\\n  {}constexpr int c = 1;",
    "comments and conditions": "/* const */ // constexpr\n#if A\n{}const int a[1] = {{1}};\n#endif\n{}const int b = 1;",
}
UNTOUCHED = {
    "memory spaces": "__device__ constexpr int a[1] = {1}; __constant__ const int b[1] = {1};",
    "functions": (
        "__device__ constexpr int twice(int x) { const int y = 2; return y * x; }\n"
        "template <typename T> static __device__ const T* next(const T* x) { static constexpr int a[1] = {1}; "
        'return x + a[0]; }\nextern "C" __global__ void k(const float* x, float* y) { constexpr int a[1] = {1}; }'
    ),
    "members": "struct S { static constexpr int a = 1; const int b = 2; __device__ int f() const { return a; } };",
    "members defined outside": "__device__ int S::f() const { return 1; }",
    "types": "using A = const int; typedef const int B; template <> struct T<const int> : U<const int> { };",
    "template parameters": "template <const int N> struct S { };",
    "variables": "static_assert(sizeof(const int) == 4); struct S; enum E { A };",
}

EVERY_KIND = """
struct S { int v; static constexpr int width = 2; };
namespace tables {
alignas(16) constexpr float one[4] = {1.5f, 2.0f, 3.0f, 4.0f}; const int two[2] = {1, 2};
}
constexpr int N = 4;
static const float scale = 2.5f;
inline constexpr int three[2] = {1, 2};
float const four[2] = {1, 2};
constexpr S s = {3};
template <typename T> constexpr T pi = T(3.14);
template <typename T> constexpr T pis[2] = {T(3.14), T(2)};
struct X { int a[2]; } const x = {{1, 2}};
struct Function { __device__ int operator()(int i) const { return i; } };
constexpr Function function{};
__device__ constexpr int twice(int x) { return 2 * x; }
constexpr int computed = twice(3);
__device__ float read(const int& by_reference) { return by_reference; }
extern "C" __global__ void k(float* y) {
  int i = threadIdx.x & 1;
  constexpr int local[2] = {1, 2};
  static constexpr int kept[2] = {1, 2};
  y[i] = tables::one[i] + tables::two[i] + read(N) + scale + three[i] + four[i] + read(s.v) + pi<float> + pis<float>[i];
  y[i] += x.a[i] + function(i) + computed + local[i] + kept[i] + S::width;
}
"""


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_constants_of_namespace_scope_are_marked(text: str) -> None:
    places = text.count("{}")
    found = with_device_constants(text.format(*[""] * places))
    assert found == text.format(*["__device__ "] * places)
    assert with_device_constants(found) == found


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_is_no_constant_of_namespace_scope_stays(text: str) -> None:
    assert with_device_constants(text) == text


def test_of_the_corpus_only_the_program_with_tables_changes() -> None:
    changed = [program.name for program in corpus("good") if with_device_constants(program.text) != program.text]
    assert changed == ["good/csr_constexpr_table"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_takes_every_kind_of_constant_that_is_marked(tmp_path: Path) -> None:
    def errors(text: str) -> str:
        (tmp_path / "k.cu").write_text(f"namespace {{\n{text}\n}}\n")
        command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall", "-c", "-o", "k.o", "k.cu"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr

    assert "undefined in device code" in errors(EVERY_KIND)
    assert errors(with_device_constants(EVERY_KIND)) == ""
