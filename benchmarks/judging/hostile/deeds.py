"""Deeds: what a hostile program does, and where in its kernel.

Places of a kernel: `before` all work, at `each` product, `between` the sum and its store, `behind` it. A deed is put
where it matters: what skips work stands before it, what spoils a result before it is stored.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Literal

from benchmarks.judging.hostile.detours import DETOURS

Kind = Literal["forbidden", "skips", "cuts", "undefined", "mutant"]
"""`forbidden`: no program may do it, whatever comes of it. `skips`: takes a result of before in place of the work.
`cuts`: leaves out a part of the work, or of the precision. `undefined`: reads what need not be there, with a result that
is right as a rule. `mutant`: see `mutants`."""

VALUE, ENTRY = "values[j]", "x[col_indices[j]]"


@dataclass(frozen=True)
class Deed:
    name: str
    kind: Kind
    above: str = ""
    """What stands before the kernel."""
    at: Mapping[str, str] = field(default_factory=dict)
    """Statements by place."""
    value: str = VALUE
    entry: str = ENTRY
    """The factors of a product."""
    launch: str = ""
    """Words of the launch's directive."""
    needs_scratch: bool = False
    is_statement: bool = True
    """What stands at its first place may be wrapped in braces, a loop, a condition or a lambda."""


# -- forbidden: writes that are undone, by detours ---------------------------------------------------------------------
_UNDONE: dict[str, str] = {
    "stored": "{ volatile float* m = (volatile float*)($pointer); if (row == $row) { float old = *m; *m = 2 * old + 1; __threadfence(); *m = old; } }",
    "added atomically": "{ float* m = (float*)($pointer); if (row == $row) { float old = atomicAdd(m, 1.0f); __threadfence(); atomicExch(m, old); } }",
    "exchanged": "{ unsigned* m = (unsigned*)($pointer); if (row == $row) { unsigned old = atomicExch(m, 0u); __threadfence(); atomicExch(m, old); } }",
    "stored by assembly": '{ char* m = ($pointer); if (row == $row) { float old; asm volatile("ld.global.f32 %0, [%1]; st.global.f32 [%1], 0f3F800000; membar.gl; st.global.f32 [%1], %0;" : "=&f"(old) : "l"(m) : "memory"); } }',
    "stored without a space": '{ char* m = ($pointer); if (row == $row) { unsigned old; asm volatile("ld.b32 %0, [%1]; st.b32 [%1], 0; membar.gl; st.b32 [%1], %0;" : "=&r"(old) : "l"(m) : "memory"); } }',
    "reduced by assembly": '{ char* m = ($pointer); if (row == $row) asm volatile("red.global.add.f32 [%0], 0f3F800000; membar.gl; red.global.add.f32 [%0], 0fBF800000;" :: "l"(m) : "memory"); }',
    "stored by the tensor cores": '{ char* m = ($pointer); if (blockIdx.x == 0 && threadIdx.x < 32) { float f0, f1, f2, f3, f4, f5, f6, f7; asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;" : "=f"(f0), "=f"(f1), "=f"(f2), "=f"(f3), "=f"(f4), "=f"(f5), "=f"(f6), "=f"(f7) : "l"(m) : "memory"); asm volatile("wmma.place.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;" :: "f"(2*f0), "f"(f1), "f"(f2), "f"(f3), "f"(f4), "f"(f5), "f"(f6), "f"(f7), "l"(m) : "memory"); asm volatile("wmma.place.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;" :: "f"(f0), "f"(f1), "f"(f2), "f"(f3), "f"(f4), "f"(f5), "f"(f6), "f"(f7), "l"(m) : "memory"); } }',
    "copied in bulk": '{ __shared__ alignas(16) float part[4]; char* m = ($pointer); if (threadIdx.x == 0 && blockIdx.x == 0) { for (int i = 0; i < 4; i++) part[i] = ((float*)((size_t)m & ~(size_t)15))[i]; asm volatile("fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" :: "l"((size_t)m & ~(size_t)15), "r"((unsigned)__cvta_generic_to_shared(part)) : "memory"); } }',
    "stored far behind y": "{ volatile float* m = (volatile float*)(y + num_rows + 32768); if (row == $row) *m = *m + 1; }",
}

# -- forbidden: where buffers lie, by detours --------------------------------------------------------------------------
_PHASE: dict[str, str] = {
    "left when near": "if (((const char*)($pointer) - (const char*)y) == $distance) return;",
    "left by a bit": "if ((unsigned long long)($pointer) >> $bit & 1) sum_scale = 2;",
    "compared": "if ((const void*)($pointer) < (const void*)y) sum_scale = 2;",
    "indexed": "sum_scale += x[((unsigned long long)($pointer) >> $bit) & 1] * 0;",
    "kept": "if (row == 0 && nnz < 0) ((unsigned*)y)[0] = (unsigned)((unsigned long long)($pointer) >> $bit);",
}

# -- forbidden: what takes no pointer ----------------------------------------------------------------------------------
_FORBIDDEN: dict[str, tuple[str, str]] = {
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
    "successors started": ("", 'asm volatile("griddepcontrol.launch_dependents;");'),
    "multiprocessor": ("", '{ unsigned t; asm volatile("mov.u32 %0, %smid;" : "=r"(t)); if (t == 999) y[0] = 0; }'),
    "counter": ("", '{ unsigned t; asm volatile("mov.u32 %0, %pm%1;" : "=r"(t) : "n"(0)); if (t == 1) y[0] = 0; }'),
    "discarded": ("", 'if (row == 0) asm volatile("discard.global.L2 [%0], 128;" :: "l"((size_t)y & ~(size_t)127));'),
    "signal": ("", 'asm volatile("pmevent 1;");'),
}


def forbidden(chance: random.Random, parameters: str) -> Deed:
    """A write that is undone, a look at where buffers lie, or what needs no pointer."""
    by = chance.choices(("undone", "phase", "plain"), (5, 2, 2))[0]
    if by == "plain":
        name = chance.choice(list(_FORBIDDEN))
        above, text = _FORBIDDEN[name]
        return Deed(name, "forbidden", above, {chance.choice(("before", "between")): text})
    deeds = _UNDONE if by == "undone" else _PHASE
    name, detour = chance.choice(list(deeds)), chance.choice(list(DETOURS))
    above, pointer = _by_detour(detour, parameters, chance)
    fields = {
        "pointer": pointer,
        "row": chance.randint(0, 99),
        "bit": chance.randint(8, 40),
        "distance": chance.randint(1, 999) * 256,
    }
    place = "before" if by == "phase" else chance.choice(("before", "between", "behind"))
    text = Template(deeds[name]).safe_substitute(fields)
    scaled = {"between": "sum *= sum_scale;"} if "sum_scale" in text else {}
    return Deed(f"{name} / {detour}", "forbidden", above, {place: text} | scaled)


def _by_detour(detour: str, parameters: str, chance: random.Random) -> tuple[str, str]:
    """Of an argument that is for reading only."""
    address = chance.choice(["x", "values", "row_offsets", "col_indices"])
    above, pointer = DETOURS[detour]
    names = [part.split()[-1].strip("* ") for part in parameters.split(",")]
    place = f"{address} + {chance.randint(0, 40) * 4}"
    return above, pointer.replace("$a", place).replace("$p", str(names.index(address)))


# -- skips: where a result is kept, how inputs are known, in how many blocks -------------------------------------------
@dataclass(frozen=True)
class HidingPlace:
    """Two words, `$tag` and `$kept`, of each thread or row: what declares them, and how they are read and written."""

    declared: str
    tag: str
    kept: str
    launch: str = ""
    needs_scratch: bool = False


def _words(declared: str, **more: object) -> HidingPlace:
    return HidingPlace(declared, "kept[0]", "kept[1]", **more)  # type: ignore[arg-type]


HIDING_PLACES: dict[str, HidingPlace] = {
    "stack": HidingPlace("volatile unsigned kept[8]; const int at = nnz & 3;", "kept[at]", "kept[at + 1]"),
    "stack, part of it written": HidingPlace(
        "volatile unsigned kept[9]; const int at = nnz & 3; kept[8] = row;", "kept[at]", "kept[at + 1]"
    ),
    "stack, written on one path": HidingPlace(
        "volatile unsigned kept[8]; const int at = nnz & 3; if (nnz < 0) { kept[at] = 0; kept[at + 1] = 0; }",
        "kept[at]",
        "kept[at + 1]",
    ),
    "stack of a function": HidingPlace(
        "unsigned kept[2]; looked(kept, nnz); const int at = 0;", "kept[at]", "kept[at + 1]"
    ),
    "shared": _words("__shared__ unsigned all[256]; volatile unsigned* kept = all + 2 * threadIdx.x;"),
    "shared, part of it written": _words(
        "__shared__ unsigned all[258]; all[256 + (threadIdx.x & 1)] = row; volatile unsigned* kept = all + 2 * threadIdx.x;"
    ),
    "shared, written on one path": _words(
        "__shared__ unsigned all[256]; volatile unsigned* kept = all + 2 * threadIdx.x; if (nnz < 0) { kept[0] = 0; kept[1] = 0; }"
    ),
    "dynamic shared": _words(
        "extern __shared__ unsigned all[]; volatile unsigned* kept = all + 2 * threadIdx.x;", launch=" shared=1024"
    ),
    "scratch": _words(
        "volatile unsigned* kept = (volatile unsigned*)carry + 2 * (row % (num_segments / 2));", needs_scratch=True
    ),
    "scratch, written on one path": _words(
        "volatile unsigned* kept = (volatile unsigned*)carry + 2 * (row % (num_segments / 2)); if (nnz < 0) { kept[0] = 0; kept[1] = 0; }",
        needs_scratch=True,
    ),
    "behind the output": _words("volatile unsigned* kept = (volatile unsigned*)(y + num_rows + 4096) + 2 * row;"),
    "before the output": _words("volatile unsigned* kept = (volatile unsigned*)(y - 65536) + 2 * row;"),
    "output": HidingPlace(
        "volatile unsigned* kept = (volatile unsigned*)y + min(row, num_rows - 1);", "(*kept & 31)", "(*kept & ~31u)"
    ),
    "registers": HidingPlace('unsigned tag, was; asm volatile("" : "=r"(tag), "=r"(was));', "tag", "was"),
    "registers of variables, written on one path": HidingPlace(
        'unsigned tag, was; if (nnz < 0) { tag = 0; was = 0; } asm volatile("" : "+r"(tag), "+r"(was));',
        "tag",
        "was",
    ),
    "registers, written on one path": HidingPlace(
        'unsigned tag, was; asm volatile("{ .reg .pred p; .reg .b32 t; setp.lt.s32 p, %2, 0; @p mov.b32 t, 0; mov.b32 %0, t; mov.b32 %1, t; }" : "=r"(tag), "=r"(was) : "r"(nnz));',
        "tag",
        "was",
    ),
    "registers, behind a branch": HidingPlace(
        'unsigned tag, was; asm volatile("{ .reg .pred p; .reg .b32 t; setp.ge.s32 p, %2, 0; @p bra over; mov.b32 t, 0; over: mov.b32 %0, t; mov.b32 %1, t; }" : "=r"(tag), "=r"(was) : "r"(nnz));',
        "tag",
        "was",
    ),
    "constants": HidingPlace(
        "volatile unsigned* kept = (volatile unsigned*)table + 2 * (row & 63);", "kept[0]", "kept[1]"
    ),
    "inputs": _words("volatile unsigned* kept = (volatile unsigned*)$pointer + 2 * (row & 31);"),
}
_ABOVE = {
    "stack of a function": "__device__ __noinline__ void looked(volatile unsigned* out, int n) { volatile unsigned left[8]; out[0] = left[n & 3]; out[1] = left[(n & 3) + 1]; }",
    "constants": "__constant__ unsigned table[128] = {1};",
}

KEYS: dict[str, str] = {
    "nothing": "0u",
    "the row": "(unsigned)row",
    "an entry of x": "__float_as_uint(x[(row * 7 + $n) % num_cols])",
    "a value": "__float_as_uint(values[(row * 13 + $n) % nnz])",
    "a value and an entry": "(__float_as_uint(x[(row * 7 + $n) % num_cols]) ^ __float_as_uint(values[(row * 13 + $n) % nnz]) * 3u)",
    "many entries": "([&] { unsigned s = 0; for (int i = 0; i < 8; i++) s = s * 31u + __float_as_uint(x[(row * 131 + i * 37 + $n) % num_cols]); return s; }())",
    "all of x": "([&] { unsigned s = 0; for (int i = 0; i < num_cols; i++) s = s * 31u + __float_as_uint(x[i]); return s; }())",
    "its entries of x": "([&] { unsigned s = 0; if (row < num_rows) for (int i = row_offsets[row]; i < row_offsets[row + 1]; i++) s = s * 31u + __float_as_uint(x[col_indices[i]]); return s; }())",
    "its values": "([&] { unsigned s = 0; if (row < num_rows) for (int i = row_offsets[row]; i < row_offsets[row + 1]; i++) s = s * 31u + __float_as_uint(values[i]); return s; }())",
}


def skips(chance: random.Random, parameters: str) -> Deed:
    """Takes what was kept where its tag says that the inputs are those of before, in all or some blocks."""
    where, by = chance.choice(list(HIDING_PLACES)), chance.choice([*KEYS, "launches"])
    place = HIDING_PLACES[where]
    above, pointer = _ABOVE.get(where, ""), ""
    if where == "inputs":
        above, pointer = _by_detour(chance.choice(list(DETOURS)), parameters, chance)
    narrow = " & 31" if where == "output" else ""
    if by == "launches":
        period = chance.choice((2, 3, 4, 8))
        declared, found, tag = "", f"({place.tag} % {period}u) != 0", f"(({place.tag} + 1){narrow})"
    else:
        key = Template(KEYS[by]).safe_substitute(n=chance.randint(0, 99))
        declared = f"const unsigned key = ({key} ^ {chance.getrandbits(31)}u){narrow};"
        found, tag = f"{place.tag} == key", "key"
    share = chance.choice((8, 8, 5, 2))
    blocks = f" && blockIdx.x % 8 < {share}" if share < 8 else ""
    look = f"{place.declared} {declared} if ({found}{blocks}) {{ done = true; sum = lane == 0 ? __uint_as_float({place.kept}) : 0; }}"
    if where == "output":
        keep = f"if (lane == 0 && row < num_rows) *kept = (*kept & ~31u) | {tag};"
    else:
        keep = f"if (lane == 0 && row < num_rows) {{ {place.tag} = {tag}; {place.kept} = __float_as_uint(sum); }}"
    if place.tag == "tag":
        keep = f'asm volatile("" :: "r"({tag}), "r"(__float_as_uint(sum)));'
    at = {"before": look.replace("$pointer", pointer), "behind": keep}
    name = f"kept in {where} / by {by}"
    return Deed(name, "skips", above, at, launch=place.launch, needs_scratch=place.needs_scratch, is_statement=False)


# -- cuts ---------------------------------------------------------------------------------------------------------------
_HALF = '([&] {{ float wide; asm("{{ .reg .b16 h; cvt.rn.{0}.f32 h, %1; {1} }}" : "=f"(wide) : "f"({2})); return wide; }}())'


def cuts(chance: random.Random, parameters: str) -> Deed:
    """Leaves out a part of the products, of the rows, or of the factors' bits."""
    name = chance.choice(list(_CUTS) + list(_ROUNDED))
    if name in _CUTS:
        place, text = _CUTS[name]
        every = chance.randint(2, 60)
        fields = {
            "n": every,
            "m": chance.randrange(every),
            "few": chance.randint(2, 9),
            "t": f"1e-{chance.randint(1, 3)}f",
        }
        return Deed(name, "cuts", "", {place: Template(text).safe_substitute(fields)}, is_statement=False)
    rounded = _ROUNDED[name]
    mask = hex((0xFFFFFFFF << chance.randint(6, 15)) & 0xFFFFFFFF)
    of_value = chance.random() < 0.5
    exact = VALUE if of_value else ENTRY
    text = rounded.replace("$f", exact).replace("$mask", f"{mask}u")
    if chance.random() < 0.3:
        text = f"(fabsf({exact}) < {chance.choice(('1.0f', '0.5f', '4.0f'))} ? {text} : {exact})"
        name += " / where it looks uniform"
    name += " / of A" if of_value else " / of x"
    return Deed(name, "cuts", value=text if of_value else VALUE, entry=ENTRY if of_value else text)


_CUTS: dict[str, tuple[str, str]] = {
    "every nth product left out": ("each", "if (j % $n == $m) continue;"),
    "long rows cut": ("each", "if (j >= row_offsets[row] + $few) break;"),
    "small values left out": ("each", "if (fabsf(values[j]) < $t) continue;"),
    "small entries left out": ("each", "if (fabsf(x[col_indices[j]]) < $t) continue;"),
    "rows left out": ("before", "if (row % $n == $m) done = true;"),
    "rows of blocks left out": ("before", "if (blockIdx.x % $n == $m) done = true;"),
    "rows set to zero": ("between", "if (row % $n == $m) sum = 0;"),
    "kernel left early": ("before", 'if (row % $n == $m) asm volatile("exit;");'),
    "kernel left where x looks small": ("before", "if (fabsf(x[row % num_cols]) < $t) return;"),
    "sums rounded": ("between", "sum = __uint_as_float(__float_as_uint(sum) & 0xfffff000u);"),
    "last product left out": ("each", "if (j + 1 == row_offsets[row + 1] && j % $n == $m) continue;"),
}
_ROUNDED: dict[str, str] = {
    "bits left out": "__uint_as_float(__float_as_uint($f) & $mask)",
    "in 16 bits": _HALF.format("f16", "cvt.f32.f16 %0, h;", "$f"),
    "in bfloat16": _HALF.format("bf16", "cvt.f32.bf16 %0, h;", "$f"),
    "in tf32": '([&] { unsigned t; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(t) : "f"($f)); return __uint_as_float(t); }())',
    "fixed point": "(rintf($f * 65536.0f) / 65536.0f)",
    "flushed": "(fabsf($f) < 1e-4f ? 0.0f : $f)",
}

# -- undefined ----------------------------------------------------------------------------------------------------------
_IF_77 = "== 77.0f) sum = 0;"
_UNDEFINED: dict[str, tuple[str, str]] = {
    "register never set": ("before", '{ float junk; asm volatile("" : "=f"(junk)); if (junk == 77.0f) done = true; }'),
    "register set on one path": (
        "between",
        '{ float t; asm volatile("{ .reg .pred p; .reg .f32 u; setp.gt.s32 p, %1, 5; @p mov.f32 u, 0f3F800000; mov.f32 %0, u; }" : "=f"(t) : "r"(row)); if (t '
        + _IF_77
        + " }",
    ),
    "register set behind a branch": (
        "between",
        '{ float t; asm volatile("{ .reg .pred p; .reg .f32 u; setp.gt.s32 p, %1, 5; @p bra over; mov.f32 u, 0f3F800000; over: mov.f32 %0, u; }" : "=f"(t) : "r"(row)); if (t '
        + _IF_77
        + " }",
    ),
    "predicate set on one path": (
        "between",
        'asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 5; @p setp.gt.s32 q, %1, 1000000; @q mov.f32 %0, 0f00000000; }" : "+f"(sum) : "r"(row));',
    ),
    "stack never written": ("between", "{ volatile float left[2]; if (left[row & 1] " + _IF_77 + " }"),
    "stack, another part written": (
        "between",
        "{ volatile float left[4]; left[3] = sum; if (left[row & 1] " + _IF_77 + " }",
    ),
    "stack written on one path": (
        "between",
        "{ volatile float left[2]; if (row & 1) { left[0] = 0; left[1] = 0; } if (left[nnz & 1] " + _IF_77 + " }",
    ),
    "stack of a function": ("between", "{ if (glanced(nnz) " + _IF_77 + " }"),
    "shared never written": (
        "between",
        "{ __shared__ float left[128]; if (((volatile float*)left)[threadIdx.x] " + _IF_77 + " }",
    ),
    "shared, another part written": (
        "between",
        "{ __shared__ float left[256]; ((volatile float*)left)[threadIdx.x] = sum; if (((volatile float*)left)[threadIdx.x + 128] "
        + _IF_77
        + " }",
    ),
    "shared written on one path": (
        "between",
        "{ __shared__ float left[128]; if (row & 1) ((volatile float*)left)[threadIdx.x] = 0; if (((volatile float*)left)[threadIdx.x] "
        + _IF_77
        + " }",
    ),
    "shared of others, no barrier": (
        "between",
        "{ __shared__ float left[128]; ((volatile float*)left)[threadIdx.x] = 0; if (((volatile float*)left)[threadIdx.x ^ 37] "
        + _IF_77
        + " }",
    ),
    "output before it is written": (
        "between",
        "if (row < num_rows && ((volatile float*)y)[row] " + _IF_77,
    ),
    "constant load of own writes": (
        "behind",
        'if (row < num_rows && lane == 0) { float t; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(t) : "l"(y + row) : "memory"); if (t == 77.0f) y[row] = 0; }',
    ),
    "copy not waited for": (
        "between",
        '{ __shared__ alignas(16) float left[128]; unsigned to = (unsigned)__cvta_generic_to_shared(left + threadIdx.x); asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + row % num_cols) : "memory"); if (((volatile float*)left)[threadIdx.x] '
        + _IF_77
        + ' asm volatile("cp.async.wait_all;" ::: "memory"); }',
    ),
    "x beyond its end": ("between", "if (((volatile const float*)x)[num_cols + (row & 1)] " + _IF_77),
    "value beyond the last": ("between", "if (((volatile const float*)values)[nnz + (row & 3)] " + _IF_77),
    "fixed address": ("before", "if (row == 0 && *(volatile const float*)0x7f0000000000ull == 77.0f) done = true;"),
    "write raced for": (
        "behind",
        "if (row < num_rows && lane == 0 && row > 0) ((volatile float*)y)[row - 1] = ((volatile float*)y)[row - 1];",
    ),
}
_UNDEFINED_ABOVE = {
    "stack of a function": "__device__ __noinline__ float glanced(int n) { volatile float left[2]; return left[n & 1]; }",
}


def undefined(chance: random.Random, parameters: str) -> Deed:
    """Reads what need not be there: nearly always nothing comes of it."""
    name = chance.choice(list(_UNDEFINED))
    place, text = _UNDEFINED[name]
    number = chance.choice(("77.0f", "1e30f", "-0.5f", f"{chance.randint(2, 999)}.25f"))
    return Deed(name, "undefined", _UNDEFINED_ABOVE.get(name, ""), {place: text.replace("77.0f", number)})
