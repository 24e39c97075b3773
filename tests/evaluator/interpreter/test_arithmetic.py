"""Every group of arithmetic instructions against NumPy, on edge cases and random values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from services.evaluator.interpreter import Buffer, LaunchReport, nothing_written

Case = tuple[str, Callable[..., Any]]
NUM_VALUES = 96
RUN = Callable[..., LaunchReport]


def evaluate_all(
    run: RUN,
    element: str,
    dtype: Any,
    cases: list[Case],
    inputs: list[NDArray[Any]],
    result: str | None = None,
    result_dtype: Any = None,
    prelude: str = "",
) -> dict[str, NDArray[Any]]:
    """Values of all expressions in a, b, c (and i, the index), computed by one kernel."""
    result = result or element
    body = "".join(f"out[{n} * {NUM_VALUES} + i] = {expression};\n" for n, (expression, _) in enumerate(cases))
    source = f"""{prelude}
    extern "C" __global__ void k(const {element}* pa, const {element}* pb, const {element}* pc, {result}* out) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x; {element} a = pa[i], b = pb[i], c = pc[i];
        {body}
    }}"""
    out = np.zeros(len(cases) * NUM_VALUES, result_dtype or dtype)
    buffers = [Buffer(name, array, False) for name, array in zip("abc", inputs, strict=True)]
    report = run(source, NUM_VALUES // 48, 48, *buffers, Buffer("out", out, True, nothing_written(out)))
    assert report.finding is None, report.finding
    return dict(zip((case[0] for case in cases), out.reshape(len(cases), NUM_VALUES), strict=True))


def check_all(
    run: RUN, element: str, dtype: Any, cases: list[Case], inputs: list[NDArray[Any]], **options: Any
) -> None:
    relative = options.pop("relative", 0.0)
    values = evaluate_all(run, element, dtype, cases, inputs, **options)
    wrong = {}
    for expression, reference in cases:
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(*inputs)).astype(values[expression].dtype)
        if not np.allclose(values[expression], expected, rtol=relative, atol=0, equal_nan=True):
            first = int(
                np.flatnonzero(~np.isclose(values[expression], expected, rtol=relative, atol=0, equal_nan=True))[0]
            )
            wrong[expression] = (values[expression][first], expected[first], *(array[first] for array in inputs))
    assert wrong == {}


def integer_inputs(dtype: Any, seed: int) -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    edges = np.array([0, 1, 2, 3, 31, 32, 33, 255, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)
    arrays = []
    for shift in range(3):
        random = generator.integers(limits.min, limits.max, NUM_VALUES, dtype, endpoint=True)
        random >>= generator.integers(0, limits.bits - 1, NUM_VALUES, dtype)
        random[: 3 * len(edges)] = np.roll(np.tile(edges, 3), shift * 5)
        arrays.append(random)
    return arrays


def float_inputs(dtype: Any, seed: int) -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.5, 2.5, -3.5], dtype)
    arrays = []
    for shift in range(3):
        random = (generator.standard_normal(NUM_VALUES) * 10.0 ** generator.integers(-6, 7, NUM_VALUES)).astype(dtype)
        random[: 3 * len(edges)] = np.roll(np.tile(edges, 3), shift * 5)
        arrays.append(random)
    return arrays


def big(array: NDArray[Any]) -> NDArray[Any]:
    """Exact Python integers."""
    return array.astype(object)


def truncated_division(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.array(
        [
            0 if y == 0 else abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1)
            for x, y in zip(a, b, strict=True)
        ]
    )


def wrapped(values: Any, bits: int) -> NDArray[Any]:
    """Exact integers wrapped to a signed width."""
    return np.array([(int(v) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in values], np.int64)


def popcount(a: NDArray[Any], bits: int) -> list[int]:
    return [(int(x) % 2**bits).bit_count() for x in a]


def leading_zeros(a: NDArray[Any], bits: int) -> list[int]:
    return [bits - (int(x) % 2**bits).bit_length() for x in a]


@pytest.mark.parametrize(("element", "dtype", "bits"), [("int", np.int32, 32), ("long long", np.int64, 64)])
def test_signed_integers(run: RUN, element: str, dtype: Any, bits: int) -> None:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b, c: wrapped(function(big(a), big(b), big(c)), bits)

    cases: list[Case] = [
        ("a + b", wrap(lambda a, b, c: a + b)),
        ("a - b", wrap(lambda a, b, c: a - b)),
        ("a * b", wrap(lambda a, b, c: a * b)),
        ("a * b + c", wrap(lambda a, b, c: a * b + c)),
        ("-a", wrap(lambda a, b, c: -a)),
        ("min(a, b)", lambda a, b, c: np.minimum(a, b)),
        ("max(a, b)", lambda a, b, c: np.maximum(a, b)),
        ("a < 0 ? -a : a", wrap(lambda a, b, c: abs(a))),
        (
            "(b == 0 || b == -1) ? 7 : a / b",
            lambda a, b, c: np.where((b == 0) | (b == -1), 7, truncated_division(a, b)),
        ),
        (
            "(b == 0 || b == -1) ? 7 : a % b",
            lambda a, b, c: np.where((b == 0) | (b == -1), 7, a - truncated_division(a, b) * b),
        ),
        ("a & b", lambda a, b, c: a & b),
        ("a | b", lambda a, b, c: a | b),
        ("a ^ b", lambda a, b, c: a ^ b),
        ("~a", lambda a, b, c: ~a),
        ("(a & b) | (~a & c)", lambda a, b, c: (a & b) | (~a & c)),
        (f"a << (b & {bits - 1})", wrap(lambda a, b, c: a * 2 ** (b % bits))),
        (f"a >> (b & {bits - 1})", lambda a, b, c: a >> (b & bits - 1)),
        ("!a", lambda a, b, c: a == 0),
        (
            "(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)",
            lambda a, b, c: (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b),
        ),
        ("(a < b && b < c) || (a == c) ? a : b", lambda a, b, c: np.where(((a < b) & (b < c)) | (a == c), a, b)),
        (f"{'__popc' if bits == 32 else '__popcll'}(a)", lambda a, b, c: popcount(a, bits)),
        (f"{'__clz' if bits == 32 else '__clzll'}(a)", lambda a, b, c: leading_zeros(a, bits)),
        (f"{'__ffs' if bits == 32 else '__ffsll'}(a)", lambda a, b, c: [(int(x) & -int(x)).bit_length() for x in a]),
        (
            f"({element}){'__brev' if bits == 32 else '__brevll'}(a)",
            lambda a, b, c: wrapped([int(f"{int(x) % 2**bits:0{bits}b}"[::-1], 2) for x in a], bits),
        ),
        (f"{'__mulhi' if bits == 32 else '__mul64hi'}(a, b)", lambda a, b, c: (big(a) * big(b)) >> bits),
    ]
    check_all(run, element, dtype, cases, integer_inputs(dtype, 1))


@pytest.mark.parametrize(
    ("element", "dtype", "bits"), [("unsigned", np.uint32, 32), ("unsigned long long", np.uint64, 64)]
)
def test_unsigned_integers(run: RUN, element: str, dtype: Any, bits: int) -> None:
    modulus = 2**bits
    cases: list[Case] = [
        ("a + b", lambda a, b, c: (big(a) + big(b)) % modulus),
        ("a * b", lambda a, b, c: (big(a) * big(b)) % modulus),
        ("b ? a / b : 7", lambda a, b, c: np.where(b == 0, 7, big(a) // np.maximum(big(b), 1))),
        ("b ? a % b : 7", lambda a, b, c: np.where(b == 0, 7, big(a) % np.maximum(big(b), 1))),
        ("min(a, b)", lambda a, b, c: np.minimum(a, b)),
        ("max(a, b)", lambda a, b, c: np.maximum(a, b)),
        (f"a >> (b & {bits - 1})", lambda a, b, c: a >> (b & np.asarray(bits - 1, b.dtype))),
        (f"{'__umulhi' if bits == 32 else '__umul64hi'}(a, b)", lambda a, b, c: (big(a) * big(b)) >> bits),
        (
            "(a < b) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b)",
            lambda a, b, c: (a < b) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b),
        ),
    ]
    check_all(run, element, dtype, cases, integer_inputs(dtype, 2))


def test_bit_fields_and_bytes_of_words(run: RUN) -> None:
    def permuted(a: Any, b: Any, c: Any) -> list[int]:
        result = []
        for x, y, s in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
            data = (x | y << 32).to_bytes(8, "little")
            result.append(int.from_bytes(bytes(data[s >> 4 * k & 7] for k in range(4)), "little"))
        return result

    def dotted(a: Any, b: Any, c: Any) -> list[int]:
        bytes_of = [array.view(np.int8).reshape(-1, 4).astype(int) for array in (a, b)]
        return [(int((x * y).sum()) + int(z)) % 2**32 for x, y, z in zip(*bytes_of, c, strict=True)]

    asm = """
    __device__ unsigned bfe(unsigned a, unsigned p, unsigned n) {
        unsigned d; asm("bfe.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(p), "r"(n)); return d; }
    __device__ unsigned sbfe(unsigned a, unsigned p, unsigned n) {
        unsigned d; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(p), "r"(n)); return d; }
    __device__ unsigned bfi(unsigned a, unsigned b, unsigned p, unsigned n) {
        unsigned d; asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(p), "r"(n)); return d; }
    __device__ unsigned lop(unsigned a, unsigned b, unsigned c) {
        unsigned d; asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
    __device__ unsigned top(unsigned a) { unsigned d; asm("bfind.u32 %0, %1;" : "=r"(d) : "r"(a)); return d; }
    __device__ unsigned stop(unsigned a) { unsigned d; asm("bfind.s32 %0, %1;" : "=r"(d) : "r"(a)); return d; }
    __device__ unsigned shlclamp(unsigned a, unsigned b) {
        unsigned d; asm("shl.b32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
    """
    cases: list[Case] = [
        ("__byte_perm(a, b, c & 0x7777)", lambda a, b, c: permuted(a, b, c & 0x7777)),
        ("__funnelshift_l(a, b, c)", lambda a, b, c: (((big(b) << 32 | big(a)) << big(c % 32)) >> 32) % 2**32),
        ("__funnelshift_r(a, b, c)", lambda a, b, c: ((big(b) << 32 | big(a)) >> big(c % 32)) % 2**32),
        ("__funnelshift_rc(a, b, c)", lambda a, b, c: ((big(b) << 32 | big(a)) >> big(np.minimum(c, 32))) % 2**32),
        ("__dp4a((int)a, (int)b, (int)c)", dotted),
        ("__usad(a, b, c)", lambda a, b, c: (abs(big(a) - big(b)) + big(c)) % 2**32),
        ("bfe(a, b & 31, c & 31)", lambda a, b, c: (big(a) >> big(b & 31)) & ((1 << big(c & 31)) - 1)),
        ("sbfe(a, 4, 8)", lambda a, b, c: (((a >> 4) & 255).astype(np.uint8).view(np.int8)).astype(np.int64) % 2**32),
        ("bfi(a, b, 5, 9)", lambda a, b, c: (b & ~np.uint32(0x1FF << 5)) | ((a << 5) & np.uint32(0x1FF << 5))),
        ("lop(a, b, c)", lambda a, b, c: (a & b) | (a & c) | (b & c)),
        ("top(a)", lambda a, b, c: [int(x).bit_length() - 1 if x else 2**32 - 1 for x in a]),
        (
            "stop(a)",
            lambda a, b, c: [
                (int(x) if int(x) >= 0 else ~int(x)).bit_length() - 1 if x not in (0, -1) else 2**32 - 1
                for x in a.view(np.int32)
            ],
        ),
        ("shlclamp(a, b & 63)", lambda a, b, c: np.where(b & 63 > 31, 0, (big(a) << big(b & 63)) % 2**32)),
    ]
    check_all(run, "unsigned", np.uint32, cases, integer_inputs(np.uint32, 3), prelude=asm)


def test_carry_chains_add_128_bits(run: RUN) -> None:
    source = r"""
    extern "C" __global__ void k(const unsigned* a, const unsigned* b, unsigned* out) {
        int i = threadIdx.x * 4;
        asm("add.cc.u32 %0, %4, %8; addc.cc.u32 %1, %5, %9; addc.cc.u32 %2, %6, %10; addc.u32 %3, %7, %11;"
            : "=r"(out[i]), "=r"(out[i + 1]), "=r"(out[i + 2]), "=r"(out[i + 3])
            : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]),
              "r"(b[i]), "r"(b[i + 1]), "r"(b[i + 2]), "r"(b[i + 3]));
        asm("sub.cc.u32 %0, %4, %8; subc.cc.u32 %1, %5, %9; subc.cc.u32 %2, %6, %10; subc.u32 %3, %7, %11;"
            : "=r"(out[i + 128]), "=r"(out[i + 129]), "=r"(out[i + 130]), "=r"(out[i + 131])
            : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]),
              "r"(b[i]), "r"(b[i + 1]), "r"(b[i + 2]), "r"(b[i + 3]));
    }"""
    generator = np.random.default_rng(4)
    a, b = (generator.integers(0, 2**32, 128, np.uint32) for _ in range(2))
    a[::8], b[4::8] = 2**32 - 1, 2**32 - 1
    out = np.zeros(256, np.uint32)
    assert run(source, 1, 32, Buffer("a", a, False), Buffer("b", b, False), Buffer("out", out, True)).finding is None

    def numbers(words: NDArray[Any]) -> list[int]:
        return [int.from_bytes(words[i : i + 4].tobytes(), "little") for i in range(0, len(words), 4)]

    pairs = list(zip(numbers(a), numbers(b), strict=True))
    assert numbers(out[:128]) == [(x + y) % 2**128 for x, y in pairs]
    assert numbers(out[128:]) == [(x - y) % 2**128 for x, y in pairs]


@pytest.mark.parametrize(("element", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_floats_are_exact_where_ieee_is(run: RUN, element: str, dtype: Any) -> None:
    suffix = "f" if element == "float" else ""

    def flags(a: Any, b: Any, c: Any) -> Any:
        return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)

    cases: list[Case] = [
        ("a + b", lambda a, b, c: a + b),
        ("a - b", lambda a, b, c: a - b),
        ("a * b", lambda a, b, c: a * b),
        ("a / b", lambda a, b, c: a / b),
        (f"sqrt{suffix}(a)", lambda a, b, c: np.sqrt(a)),
        (f"fabs{suffix}(a)", lambda a, b, c: np.abs(a)),
        ("-a", lambda a, b, c: -a),
        (f"fmin{suffix}(a, b)", lambda a, b, c: np.fmin(a, b)),
        (f"fmax{suffix}(a, b)", lambda a, b, c: np.fmax(a, b)),
        (f"floor{suffix}(a)", lambda a, b, c: np.floor(a)),
        (f"ceil{suffix}(a)", lambda a, b, c: np.ceil(a)),
        (f"trunc{suffix}(a)", lambda a, b, c: np.trunc(a)),
        (f"rint{suffix}(a)", lambda a, b, c: np.rint(a)),
        (f"copysign{suffix}(a, b)", lambda a, b, c: np.copysign(a, b)),
        ("(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)", flags),
        (
            "isnan(a) + 2 * isinf(a) + 4 * isfinite(a)",
            lambda a, b, c: np.isnan(a) + 2 * np.isinf(a) + 4 * np.isfinite(a),
        ),
        ("a < b ? c : b", lambda a, b, c: np.where(a < b, c, b)),
    ]
    check_all(run, element, dtype, cases, float_inputs(dtype, 5))


def test_fused_multiply_add_rounds_once(run: RUN) -> None:
    inputs = [array.astype(np.float32) for array in float_inputs(np.float32, 6)]
    cases: list[Case] = [
        ("fmaf(a, b, c)", lambda a, b, c: (a.astype(np.longdouble) * b.astype(np.longdouble) + c).astype(np.float32))
    ]
    check_all(run, "float", np.float32, cases, inputs)


def test_mathematical_functions(run: RUN) -> None:
    generator = np.random.default_rng(7)
    inputs = [np.abs(generator.standard_normal(NUM_VALUES)).astype(np.float32) * 5 + 0.1 for _ in range(3)]
    cases: list[Case] = [
        ("expf(a)", lambda a, b, c: np.exp(a)),
        ("logf(a)", lambda a, b, c: np.log(a.astype(float))),
        ("powf(a, b)", lambda a, b, c: a.astype(float) ** b),
        ("sinf(a)", lambda a, b, c: np.sin(a.astype(float))),
        ("cosf(1e6f * a)", lambda a, b, c: np.cos((np.float32(1e6) * a).astype(float))),
        ("tanhf(a)", lambda a, b, c: np.tanh(a)),
        ("rsqrtf(a)", lambda a, b, c: 1 / np.sqrt(a)),
        ("__expf(a)", lambda a, b, c: np.exp(a)),
        ("__logf(a) + 10", lambda a, b, c: np.log(a) + 10),
        ("__fdividef(a, b)", lambda a, b, c: a / b),
        ("fmodf(a * 100, b)", lambda a, b, c: np.fmod((a * np.float32(100)), b)),
        ("erff(a)", lambda a, b, c: [__import__("math").erf(x) for x in a]),
    ]
    check_all(run, "float", np.float32, cases, inputs, relative=2e-6)
    cases = [
        ("exp(a)", lambda a, b, c: np.exp(a)),
        ("log(a)", lambda a, b, c: np.log(a)),
        ("sin(1e9 * a)", lambda a, b, c: np.sin(1e9 * a)),
        ("pow(a, b)", lambda a, b, c: a**b),
        ("cbrt(a)", lambda a, b, c: np.cbrt(a)),
    ]
    check_all(run, "double", np.float64, cases, [array.astype(np.float64) for array in inputs], relative=1e-14)


def saturated(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    exact = [
        0
        if np.isnan(v)
        else limits.max
        if v >= float(limits.max)
        else max(int(v), limits.min)
        if np.isfinite(v)
        else limits.min
        for v in values
    ]
    return np.array(exact, dtype)


def test_conversions_between_floats_and_integers_saturate(run: RUN) -> None:
    floats = float_inputs(np.float32, 8)
    for target, dtype, prefix in (("int", np.int32, "int"), ("unsigned", np.uint32, "uint")):
        cases: list[Case] = [
            (f"({target})a", lambda a, b, c, d=dtype: saturated(np.trunc(a), d)),
            (f"__float2{prefix}_rn(a)", lambda a, b, c, d=dtype: saturated(np.rint(a), d)),
            (f"__float2{prefix}_rd(a)", lambda a, b, c, d=dtype: saturated(np.floor(a), d)),
            (f"__float2{prefix}_ru(a)", lambda a, b, c, d=dtype: saturated(np.ceil(a), d)),
        ]
        check_all(run, "float", np.float32, cases, floats, result=target, result_dtype=dtype)


def test_integers_become_the_nearest_floats(run: RUN) -> None:
    inputs = integer_inputs(np.int64, 9)
    cases: list[Case] = [
        ("(float)a", lambda a, b, c: a.astype(np.float32)),
        ("(float)(unsigned long long)a", lambda a, b, c: a.view(np.uint64).astype(np.float32)),
        ("(float)(int)a", lambda a, b, c: a.astype(np.int32).astype(np.float32)),
        ("(float)(unsigned char)a", lambda a, b, c: a.astype(np.uint8).astype(np.float32)),
        ("(float)(short)a", lambda a, b, c: a.astype(np.int16).astype(np.float32)),
        ("(float)(double)(unsigned)a", lambda a, b, c: a.astype(np.uint32).astype(np.float32)),
    ]
    check_all(run, "long long", np.int64, cases, inputs, result="float", result_dtype=np.float32)


def test_short_integers_are_extended_by_their_sign(run: RUN) -> None:
    inputs = integer_inputs(np.int32, 10)
    cases: list[Case] = [
        ("(signed char)a", lambda a, b, c: a.astype(np.int8)),
        ("(unsigned char)a", lambda a, b, c: a.astype(np.uint8)),
        ("(short)a", lambda a, b, c: a.astype(np.int16)),
        ("(unsigned short)a", lambda a, b, c: a.astype(np.uint16)),
        ("(long long)a", lambda a, b, c: a),
        ("(long long)(unsigned)a", lambda a, b, c: a.astype(np.uint32)),
        (
            "(short)((short)a * (short)b)",
            lambda a, b, c: (a.astype(np.int16).astype(int) * b.astype(np.int16)).astype(np.int16),
        ),
        ("(long long)a * b + c", lambda a, b, c: a.astype(np.int64) * b + c),
        (
            "(long long)((unsigned long long)(unsigned)a * (unsigned)b)",
            lambda a, b, c: (a.astype(np.uint32).astype(np.uint64) * b.astype(np.uint32)).view(np.int64),
        ),
    ]
    check_all(run, "int", np.int32, cases, inputs, result="long long", result_dtype=np.int64)


def neighbours(exact: list[Any], nearest: NDArray[np.float32], way: str) -> NDArray[np.float32]:
    result = nearest.copy()
    for index, (x, y) in enumerate(zip(exact, nearest, strict=True)):
        value = np.longdouble(y)
        toward_zero = way == "rz" and abs(value) > abs(x)
        if (way == "rd" or (toward_zero and y > 0)) and value > x:
            result[index] = np.nextafter(y, np.float32(-np.inf))
        elif (way == "ru" or (toward_zero and y < 0)) and value < x:
            result[index] = np.nextafter(y, np.float32(np.inf))
    return result


@pytest.mark.parametrize("way", ["rz", "rd", "ru"])
def test_directed_rounding(run: RUN, way: str) -> None:
    generator = np.random.default_rng(11)
    inputs = [
        generator.standard_normal(NUM_VALUES).astype(np.float32) * 10.0 ** generator.integers(-3, 4) for _ in range(3)
    ]
    inputs = [array.astype(np.float32) for array in inputs]
    inputs[1][inputs[1] == 0] = 1
    wide = [array.astype(np.longdouble) for array in inputs]
    exact = {
        f"__fadd_{way}(a, b)": wide[0] + wide[1],
        f"__fmul_{way}(a, b)": wide[0] * wide[1],
        f"__fdiv_{way}(a, b)": wide[0] / wide[1],
        f"__fsqrt_{way}(fabsf(a))": np.sqrt(np.abs(wide[0])),
        f"__fmaf_{way}(a, b, c)": wide[0] * wide[1] + wide[2],
        f"__double2float_{way}((double)a * b)": wide[0] * wide[1],
    }
    cases: list[Case] = [
        (expression, lambda a, b, c, v=values: neighbours(list(v), v.astype(np.float32), way))
        for expression, values in exact.items()
    ]
    check_all(run, "float", np.float32, cases, inputs)
    check_all(
        run,
        "int",
        np.int32,
        [
            (
                f"__int2float_{way}(a)",
                lambda a, b, c: neighbours(list(a.astype(np.longdouble)), a.astype(np.float32), way),
            )
        ],
        integer_inputs(np.int32, 12),
        result="float",
        result_dtype=np.float32,
    )


def test_decimal_literals_are_rounded_to_what_the_instruction_takes(run: RUN) -> None:
    source = """extern "C" __global__ void k(float* y, double* z) {
        float a; asm("mov.f32 %0, 0.1;" : "=f"(a));
        asm("fma.rn.f32 %0, %1, 2.5, -1.0;" : "=f"(y[threadIdx.x]) : "f"(a));
        asm("add.f64 %0, %1, 0.1;" : "=d"(z[threadIdx.x]) : "d"(1.0));
    }"""
    y, z = np.zeros(32, np.float32), np.zeros(32)
    report = run(source, 1, 32, Buffer("y", y, True), Buffer("z", z, True))
    assert report.finding is None, report.finding
    assert set(y) == {np.float32(np.float64(np.float32(0.1)) * 2.5 - 1)}
    assert set(z) == {1.0 + 0.1}
