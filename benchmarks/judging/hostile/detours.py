"""Detours: an address as another pointer. What stands before the kernel, and the pointer as an expression of `$a`."""

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
