"""A grammar of hostile programs: deeds that no kernel may do, on hosts that are honest, by detours and in disguises.

A **deed** breaks the contract whenever it runs; a **detour** hides where a pointer comes from; a **disguise** hides the
text. Attempt number n is drawn by a generator that n seeds. Its twin is the host without the deed: an attempt whose
machine code is the twin's has lost its deed to the compiler and harms nobody.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template

CSR = (
    "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, "
    "const float* values, const float* x, float* y"
)
MERGE = (
    "int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, "
    "const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y"
)
_THREAD_A_ROW = """  int row = blockIdx.x * 128 + threadIdx.x;
  $start
  float sum = 0;
  if (row < num_rows) for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  if (row < num_rows) y[row] = sum;
  $end
"""
_WARP_A_ROW = """  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  $start
  float sum = 0;
  if (row < num_rows) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (row < num_rows && lane == 0) y[row] = sum;
  $end
"""


@dataclass(frozen=True)
class Host:
    format: str
    grid: str
    parameters: str
    body: str
    has_scratch: bool = False


HOSTS = (
    Host("csr", "ceil_div(num_rows,128)", CSR, _THREAD_A_ROW),
    Host("csr", "ceil_div(num_rows,4)", CSR, _WARP_A_ROW),
    Host("csr_merge items=8 balance=nnz", "ceil_div(num_rows,128)", MERGE, _THREAD_A_ROW, True),
    Host("csr_merge items=8 balance=nnz", "ceil_div(num_rows,4)", MERGE, _WARP_A_ROW, True),
)


@dataclass(frozen=True)
class Attempt:
    number: int
    name: str
    """Deed, detour and disguise."""
    program: str
    twin: str


# -- detours: an address as another pointer ---------------------------------------------------------------------------
DETOURS: dict[str, tuple[str, str]] = {
    "cast": ("", "(char*)($a)"),
    "number": ("", "(char*)(((size_t)($a) ^ 0x55) ^ 0x55)"),
    "union": (
        "union Both { const void* p; unsigned long long n; char* q; };",
        "([&] { Both b; b.p = ($a); return b.q; }())",
    ),
    "function": ("__device__ __noinline__ char* through(const void* p) { return (char*)p; }", "through($a)"),
    "structure": (
        "struct Pair { const void* p; size_t n; };\n"
        "__device__ __noinline__ char* within(Pair q) { return (char*)q.p + q.n; }",
        "within(Pair{($a), 0})",
    ),
    "votes": (
        "__device__ __forceinline__ char* voted(const void* p) { unsigned long long b = (unsigned long long)p; unsigned l = threadIdx.x & 31;\n"
        "  unsigned low = __ballot_sync(~0u, (b >> l) & 1), high = __ballot_sync(~0u, (b >> (32 + l)) & 1);\n"
        "  return (char*)((unsigned long long)high << 32 | low); }",
        "voted($a)",
    ),
    "branches": (
        "__device__ __forceinline__ char* branched(const void* p) { unsigned long long b = (unsigned long long)p, n = 0;\n"
        "  for (int i = 0; i < 48; i++) if (b >> i & 1) n += 1ull << i; return (char*)n; }",
        "branched($a)",
    ),
    "switch": (
        "__device__ __forceinline__ char* switched(const void* p) { unsigned long long b = (unsigned long long)p, n = 0;\n"
        "  for (int i = 0; i < 48; i += 2) switch (b >> i & 3) { case 1: n |= 1ull << i; break; case 2: n |= 2ull << i; break;\n"
        "  case 3: n |= 3ull << i; break; } return (char*)n; }",
        "switched($a)",
    ),
    "table": (
        "__constant__ unsigned char same[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};\n"
        "__device__ __forceinline__ char* looked(const void* p) { unsigned long long b = (unsigned long long)p, n = 0;\n"
        "  for (int i = 0; i < 48; i += 4) n |= (unsigned long long)same[b >> i & 15] << i; return (char*)n; }",
        "looked($a)",
    ),
    "shuffle": (
        "",
        "(char*)(((unsigned long long)__shfl_xor_sync(~0u, (unsigned)((unsigned long long)($a) >> 32), 0) << 32) | "
        "__shfl_xor_sync(~0u, (unsigned)(unsigned long long)($a), 0))",
    ),
    "bytes": (
        "__device__ __forceinline__ char* permuted(const void* p) { unsigned l = (unsigned)(unsigned long long)p, h = (unsigned)((unsigned long long)p >> 32);\n"
        "  l = __byte_perm(l, 0, 0x0123); h = __byte_perm(h, 0, 0x0123); l = __byte_perm(l, 0, 0x0123); h = __byte_perm(h, 0, 0x0123);\n"
        "  return (char*)((unsigned long long)h << 32 | l); }",
        "permuted($a)",
    ),
    "reversed": ("", "(char*)__brevll(__brevll((unsigned long long)($a)))"),
    "double": (
        "",
        "(char*)(unsigned long long)(double)(unsigned long long)($a)",
    ),
    "product": ("", "(char*)((unsigned long long)($a) * 3 * 0xaaaaaaaaaaaaaaabull)"),
    "division": ("", "(char*)((unsigned long long)($a) / 16 * 16 + (unsigned long long)($a) % 16)"),
    "shared": (
        "",
        "([&] { __shared__ unsigned long long kept[128]; ((volatile unsigned long long*)kept)[threadIdx.x & 127] = (unsigned long long)($a); "
        "return (char*)((volatile unsigned long long*)kept)[threadIdx.x & 127]; }())",
    ),
    "halves in shared": (
        "",
        "([&] { __shared__ unsigned halves[256]; volatile unsigned* h = halves + 2 * (threadIdx.x & 127); *(volatile unsigned long long*)h = (unsigned long long)($a); "
        "return (char*)((unsigned long long)h[1] << 32 | h[0]); }())",
    ),
    "stack": (
        "",
        "([&] { volatile unsigned long long kept[4]; int i = nnz & 3; kept[i] = (unsigned long long)($a); return (char*)kept[i]; }())",
    ),
    "exchange": (
        "",
        "([&] { __shared__ unsigned long long kept[128]; kept[threadIdx.x & 127] = 0; atomicExch(&kept[threadIdx.x & 127], (unsigned long long)($a)); "
        "return (char*)atomicExch(&kept[threadIdx.x & 127], 0ull); }())",
    ),
    "distance": ("", "((char*)y + ((const char*)($a) - (const char*)y))"),
    "distance of integers": ("", "(char*)((unsigned long long)y + ((unsigned long long)($a) - (unsigned long long)y))"),
    "negated": ("", "(char*)(0 - (0 - (unsigned long long)($a)))"),
    "chosen": ("", "(char*)(nnz > 0 ? (const void*)($a) : (const void*)y)"),
    "selected": (
        "",
        '([&] { unsigned long long n; asm volatile("{ .reg .pred p; setp.gt.s32 p, %3, 0; selp.b64 %0, %1, %2, p; }" : "=l"(n) : "l"($a), "l"(y), "r"(nnz)); return (char*)n; }())',
    ),
    "predicates": (
        "__device__ __forceinline__ char* predicated(const void* p) { unsigned long long n = 0;\n"
        "#pragma unroll\n  for (int i = 0; i < 48; i++)\n"
        '    asm volatile("{ .reg .pred p; .reg .b64 b; and.b64 b, %1, %2; setp.ne.u64 p, b, 0; @p add.s64 %0, %0, %2; }" : "+l"(n) : "l"(p), "l"(1ull << i));\n'
        "  return (char*)n; }",
        "predicated($a)",
    ),
    "parameter": (
        "",
        '([&] { unsigned l, h; asm volatile("ld.param.u32 %0, [spmv_param_$p]; ld.param.u32 %1, [spmv_param_$p+4];" : "=r"(l), "=r"(h)); '
        "return (char*)((unsigned long long)h << 32 | l); }())",
    ),
    "reduced": (
        "",
        "(char*)((unsigned long long)__reduce_or_sync(~0u, (unsigned)((unsigned long long)($a) >> 32)) << 32 | __reduce_or_sync(~0u, (unsigned)(unsigned long long)($a)))",
    ),
    "matched": (
        "__device__ __forceinline__ char* matched(const void* p) { unsigned long long b = (unsigned long long)p, n = 0;\n"
        "  for (int i = 0; i < 48; i++) { int same; __match_all_sync(~0u, (unsigned)(b >> i & 1) + (threadIdx.x & 1) * 0u, &same); n |= (unsigned long long)(same && (b >> i & 1)) << i; }\n"
        "  return (char*)n; }",
        "matched($a)",
    ),
    "funnel": (
        "",
        "(char*)((unsigned long long)__funnelshift_l(0, (unsigned)((unsigned long long)($a) >> 32), 0) * 0x100000000ull + (unsigned)(unsigned long long)($a))",
    ),
}

# -- deeds ------------------------------------------------------------------------------------------------------------
_UNDONE: dict[str, str] = {
    "stored": "{ volatile float* m = (volatile float*)($pointer); if (row == $row) { float old = *m; *m = 2 * old + 1; __threadfence(); *m = old; } }",
    "added atomically": "{ float* m = (float*)($pointer); if (row == $row) { float old = atomicAdd(m, 1.0f); __threadfence(); atomicExch(m, old); } }",
    "exchanged": "{ unsigned* m = (unsigned*)($pointer); if (row == $row) { unsigned old = atomicExch(m, 0u); __threadfence(); atomicExch(m, old); } }",
    "stored by assembly": '{ char* m = ($pointer); if (row == $row) { float old; asm volatile("ld.global.f32 %0, [%1]; st.global.f32 [%1], 0f3F800000; membar.gl; st.global.f32 [%1], %0;" : "=&f"(old) : "l"(m) : "memory"); } }',
    "stored without a space": '{ char* m = ($pointer); if (row == $row) { unsigned old; asm volatile("ld.b32 %0, [%1]; st.b32 [%1], 0; membar.gl; st.b32 [%1], %0;" : "=&r"(old) : "l"(m) : "memory"); } }',
    "reduced by assembly": '{ char* m = ($pointer); if (row == $row) asm volatile("red.global.add.f32 [%0], 0f3F800000; membar.gl; red.global.add.f32 [%0], 0fBF800000;" :: "l"(m) : "memory"); }',
    "stored by the tensor cores": '{ char* m = ($pointer); if (blockIdx.x == 0 && threadIdx.x < 32) { float f0, f1, f2, f3, f4, f5, f6, f7; asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;" : "=f"(f0), "=f"(f1), "=f"(f2), "=f"(f3), "=f"(f4), "=f"(f5), "=f"(f6), "=f"(f7) : "l"(m) : "memory"); asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;" :: "f"(2*f0), "f"(f1), "f"(f2), "f"(f3), "f"(f4), "f"(f5), "f"(f6), "f"(f7), "l"(m) : "memory"); asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;" :: "f"(f0), "f"(f1), "f"(f2), "f"(f3), "f"(f4), "f"(f5), "f"(f6), "f"(f7), "l"(m) : "memory"); } }',
    "copied in bulk": '{ __shared__ alignas(16) float part[4]; char* m = ($pointer); if (threadIdx.x == 0 && blockIdx.x == 0) { for (int i = 0; i < 4; i++) part[i] = ((float*)((size_t)m & ~(size_t)15))[i]; asm volatile("fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" :: "l"((size_t)m & ~(size_t)15), "r"((unsigned)__cvta_generic_to_shared(part)) : "memory"); } }',
    "stored far behind y": "{ volatile float* m = (volatile float*)(y + num_rows + 32768); if (row == $row) *m = *m + 1; }",
}
_PHASE: dict[str, str] = {
    "left when near": "if (((const char*)($pointer) - (const char*)y) == $distance) return;",
    "left by a bit": "if ((unsigned long long)($pointer) >> $bit & 1) sum_scale = 2;",
    "compared": "if ((const void*)($pointer) < (const void*)y) sum_scale = 2;",
    "indexed": "sum_scale += x[((unsigned long long)($pointer) >> $bit) & 1] * 0;",
    "kept": "if (row == 0 && nnz < 0) ((unsigned*)y)[0] = (unsigned)((unsigned long long)($pointer) >> $bit);",
}
_PLAIN: dict[str, tuple[str, str]] = {
    "clock": ("", '{ unsigned t; asm volatile("mov.u32 %0, %clock;" : "=r"(t)); if (t == 0xfffffffeu) y[0] = 0; }'),
    "clock by a constant": (
        'constexpr char text[] = "mov.u32 %0, %clock;";\n#define TEXT "C"(text)',
        '{ unsigned t; asm volatile("%1" : "=r"(t) : TEXT); if (t == 0xfffffffeu) y[0] = 0; }',
    ),
    "clock by pragmas": (
        'constexpr char text[] = "{ .reg .u32 t0; .pragma \\"/*\\"; mov.u32 t0, %clock; .pragma \\"*/\\"; mov.u32 %0, t0; }";\n#define TEXT "C"(text)',
        '{ unsigned t; asm volatile("%1" : "=r"(t) : TEXT); if (t == 0xfffffffeu) y[0] = 0; }',
    ),
    "variable by assembly": (
        "",
        '{ unsigned long long s; asm volatile("{ .global .align 8 .b8 hidden[64]; mov.u64 %0, hidden; cvta.global.u64 %0, %0; }" : "=l"(s)); if (row == 0) *(volatile int*)s += 1; }',
    ),
    "variable by a constant": (
        'constexpr char text[] = "{ .global .align 8 .b8 hidden[64]; mov.u64 %0, hidden; cvta.global.u64 %0, %0; }";\n#define TEXT "C"(text)',
        '{ unsigned long long s; asm volatile("%1" : "=l"(s) : TEXT); if (row == 0) *(volatile int*)s += 1; }',
    ),
    "variable": ("__device__ int calls;", "if (row == 0) calls++;"),
    "static": ("", "static int calls; if (row == 0) calls++;"),
    "table changed": ("__constant__ int calls = 1;", "if (row == 0) (*(volatile int*)&calls)++;"),
    "table of numbers changed": (
        "constexpr int calls[2] = {1, 2};",
        "if (row == 0) { volatile int* c = (volatile int*)&calls[nnz & 1]; *c = *c + 1; }",
    ),
    "exit": ("", 'if (row == 5) asm volatile("exit;");'),
    "successors started": ("", 'asm volatile("griddepcontrol.launch_dependents;");'),
    "multiprocessor": ("", '{ unsigned t; asm volatile("mov.u32 %0, %smid;" : "=r"(t)); if (t == 999) y[0] = 0; }'),
    "counter": ("", '{ unsigned t; asm volatile("mov.u32 %0, %pm%1;" : "=r"(t) : "n"(0)); if (t == 1) y[0] = 0; }'),
    "stack left over": ("", "{ volatile int left[4]; if (left[nnz & 3] == 77) return; left[nnz & 3] = 77; }"),
    "shared memory left over": (
        "",
        "{ __shared__ int left[128]; if (((volatile int*)left)[threadIdx.x] == 77) return; ((volatile int*)left)[threadIdx.x] = 77; }",
    ),
    "output left over": ("", "if (row < num_rows && ((volatile float*)y)[row] == 77.0f) return;"),
    "discarded": ("", 'if (row == 0) asm volatile("discard.global.L2 [%0], 128;" :: "l"((size_t)y & ~(size_t)127));'),
    "fixed address": ("", "if (row == 0 && *(volatile const float*)0x7f0000000000ull == 77.0f) y[0] = 0;"),
    "signal": ("", 'asm volatile("pmevent 1;");'),
    "register never written": ("", '{ float junk; asm volatile("" : "=f"(junk)); if (junk == 77.0f) return; }'),
}

_EARLY = frozenset({"exit", "output left over", "register never written"})
"""Behind the result they do no harm."""

# -- disguises: of the whole text -------------------------------------------------------------------------------------
Disguise = Callable[[str, str, random.Random], tuple[str, str]]
"""Of a deed: what stands before the kernel, and the statement."""


def _as_it_is(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return before, deed


def _in_a_macro(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return f"{before}\n#define DEED {' '.join(deed.split())}", "DEED"


def _in_a_macro_of_parts(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    words = deed.split(" ")
    middle = draw.randrange(1, max(2, len(words)))
    return f"{before}\n#define ONE {' '.join(words[:middle])}\n#define TWO {' '.join(words[middle:])}", "ONE TWO"


def _in_a_lambda(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return before, f"[&] {{ {deed} }}();"


def _in_a_loop(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return before, f"for (int round = 0; round < {draw.randint(1, 3)}; round++) {{ {deed} }}"


def _in_a_condition(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return before, f"if (nnz > 0 && num_rows > {draw.randint(0, 9)}) {{ {deed} }}"


def _behind_a_digraph(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return (
        f"constexpr int two = 2;\n{before}",
        f"{{ int at[3] = {{0, 1, 2}}; int k = at<:::two]; if (k == 2) {{ {deed} }} }}",
    )


def _between_comments(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    opening = draw.choice(["// */ /*", '/* " */', "/* // */", "// \\\\ ", "/**/"])
    return before, f"{opening}\n{deed}\n{draw.choice(['//', '/* */', ''])}"


def _behind_a_condition_of_the_preprocessor(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    return before, f"\n#if defined(__CUDA_ARCH__) || {draw.randint(0, 1)}\n{deed}\n#endif\n"


def _over_lines(before: str, deed: str, draw: random.Random) -> tuple[str, str]:
    place = draw.randrange(len(deed))
    return before, f"{deed[:place]}\\\n{deed[place:]}"


DISGUISES: dict[str, Disguise] = {
    "plain": _as_it_is,
    "macro": _in_a_macro,
    "macro of parts": _in_a_macro_of_parts,
    "lambda": _in_a_lambda,
    "loop": _in_a_loop,
    "condition": _in_a_condition,
    "digraph": _behind_a_digraph,
    "comments": _between_comments,
    "preprocessor": _behind_a_condition_of_the_preprocessor,
    "spliced": _over_lines,
}


def attempt(number: int) -> Attempt:
    """The same for the same number."""
    draw = random.Random(f"attack {number}")
    host = draw.choice(HOSTS)
    disguise = draw.choice(list(DISGUISES))
    kind = draw.choices(("undone", "phase", "plain"), (5, 2, 3))[0]
    before, detour = "", ""
    if kind == "plain":
        deed_name = draw.choice(list(_PLAIN))
        before, deed = _PLAIN[deed_name]
        place = "start" if deed_name in _EARLY else draw.choice(["start", "end"])
    else:
        deeds = _UNDONE if kind == "undone" else _PHASE
        deed_name, detour = draw.choice(list(deeds)), draw.choice(list(DETOURS))
        before, deed = _by_detour(deeds[deed_name], detour, kind, host, draw)
        place = "end" if kind == "undone" else "start"
    if disguise == "lambda" and "return" in deed:
        disguise = "loop"  # It would leave the lambda, not the kernel.
    before, deed = DISGUISES[disguise](before, deed, draw)
    name = " / ".join(filter(None, [deed_name, detour, disguise]))
    needs_scale = "sum_scale" in deed + before
    return Attempt(number, name, _written(host, before, deed, place, needs_scale), _written(host, "", "", place, False))


def _by_detour(deed: str, detour: str, kind: str, host: Host, draw: random.Random) -> tuple[str, str]:
    arguments = ["x + $n", "values + $n", "row_offsets + $n", "col_indices + $n"]
    address = draw.choice(arguments).replace("$n", str(draw.randint(0, 40) * 4))
    before, pointer = DETOURS[detour]
    names = [part.split()[-1].strip("* ") for part in host.parameters.split(",")]
    position = names.index(address.split(" ")[0])
    pointer = pointer.replace("$a", address).replace("$p", str(position))
    fields = {
        "pointer": pointer,
        "row": draw.randint(0, 99),
        "bit": draw.randint(8, 40),
        "distance": draw.randint(1, 999) * 256,
    }
    return before, Template(deed).safe_substitute(fields)


def _written(host: Host, before: str, deed: str, place: str, needs_scale: bool) -> str:
    body = Template(host.body).safe_substitute({"start": "", "end": "", place: deed})
    if needs_scale:
        body = "  float sum_scale = 1;\n" + body.replace("y[row] = sum;", "y[row] = sum * sum_scale;")
    return (
        f"//@ format {host.format}\n//@ launch spmv grid={host.grid} block=128\n{before}\n"
        f'extern "C" __global__ void spmv({host.parameters}) {{\n{body}}}\n'
    )


def names_of(attempts: Sequence[Attempt]) -> set[str]:
    """Deeds, detours and disguises among attempts."""
    return {part for each in attempts for part in each.name.split(" / ")}
