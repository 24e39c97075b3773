"""float16 and bfloat16: conversions, arithmetic, packed arithmetic, comparisons, atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from services.evaluator.interpreter import Buffer, LaunchReport

RUN = Callable[..., LaunchReport]


def to_bfloat(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def half_values() -> NDArray[np.float16]:
    """All finite float16 values, subnormal ones included."""
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite: NDArray[np.float16] = every[np.isfinite(every)][:63488]
    return finite


def test_every_half_converts_to_float_and_back(run: RUN) -> None:
    halves = half_values()
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const __half* h, float* f, __half* back) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; f[i] = __half2float(h[i]); back[i] = __float2half(f[i]);
    }"""
    floats, back = np.zeros(len(halves), np.float32), np.zeros(len(halves), np.float16)
    buffers = [Buffer("h", halves, False), Buffer("f", floats, True), Buffer("back", back, True)]
    assert run(source, len(halves) // 256, 256, *buffers).finding is None
    np.testing.assert_array_equal(floats, halves.astype(np.float32))
    np.testing.assert_array_equal(back, halves)


def test_floats_round_to_the_nearest_half_with_ties_to_even(run: RUN) -> None:
    generator = np.random.default_rng(1)
    scales = 10.0 ** generator.uniform(-9, 6, 4096)
    values = (generator.standard_normal(4096) * scales).astype(np.float32)
    values[:6] = [65504.0, 65519.9, 65520.0, 2.0**-25, 2.0**-24 * 1.5, np.inf]
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const float* f, __half* h) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; h[i] = __float2half(f[i]);
    }"""
    out = np.zeros(4096, np.float16)
    assert run(source, 16, 256, Buffer("f", values, False), Buffer("h", out, True)).finding is None
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, values.astype(np.float16))


def test_floats_round_to_the_nearest_bfloat(run: RUN) -> None:
    values = (np.random.default_rng(2).standard_normal(1024) * 1e3).astype(np.float32)
    source = """#include <cuda_bf16.h>
    extern "C" __global__ void k(const float* f, __nv_bfloat16* b, float* back) {
        int i = threadIdx.x; b[i] = __float2bfloat16(f[i]); back[i] = __bfloat162float(b[i]);
    }"""
    out, back = np.zeros(1024, np.uint16), np.zeros(1024, np.float32)
    assert (
        run(source, 1, 1024, Buffer("f", values, False), Buffer("b", out, True), Buffer("back", back, True)).finding
        is None
    )
    np.testing.assert_array_equal(out, to_bfloat(values))
    np.testing.assert_array_equal(back, from_bfloat(out))


HALF_EXPRESSIONS: list[tuple[str, Callable[..., Any]]] = [
    ("a + b", lambda a, b: a + b),
    ("a - b", lambda a, b: a - b),
    ("a * b", lambda a, b: a * b),
    ("__hfma(a, b, a)", lambda a, b: a.astype(float) * b + a),
    ("-a", lambda a, b: -a),
    ("__habs(a)", lambda a, b: np.abs(a)),
    ("__hmin(a, b)", lambda a, b: np.minimum(a, b)),
    ("__hmax(a, b)", lambda a, b: np.maximum(a, b)),
    ("a < b ? a : b", lambda a, b: np.where(a < b, a, b)),
    ("(T)(float)(a >= b)", lambda a, b: a >= b),
    ("(T)(float)__heq(a, a)", lambda a, b: a == a),
    ("hsqrt(__habs(a))", lambda a, b: np.sqrt(np.abs(a.astype(float)))),
]


@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_arithmetic_of_short_floats(run: RUN, kind: str) -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(64).astype(np.float32) for _ in range(2))
    brain = kind == "__nv_bfloat16"
    a_bits, b_bits = (to_bfloat(x) if brain else x.astype(np.float16).view(np.uint16) for x in (a, b))
    widen: Callable[[Any], Any] = from_bfloat if brain else lambda bits: bits.view(np.float16).astype(np.float32)
    narrow: Callable[[Any], Any] = to_bfloat if brain else lambda x: np.asarray(x).astype(np.float16).view(np.uint16)
    lines = "".join(f"out[{64 * n} + i] = {expression};\n" for n, (expression, _) in enumerate(HALF_EXPRESSIONS))
    source = f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    typedef {kind} T;
    extern "C" __global__ void k(const T* pa, const T* pb, T* out) {{
        int i = threadIdx.x; T a = pa[i], b = pb[i];
        {lines}
    }}"""
    out = np.zeros(64 * len(HALF_EXPRESSIONS), np.uint16)
    report = run(source, 1, 64, Buffer("a", a_bits, False), Buffer("b", b_bits, False), Buffer("out", out, True))
    assert report.finding is None, report.finding
    wrong = []
    for index, (expression, reference) in enumerate(HALF_EXPRESSIONS):
        expected = narrow(np.asarray(reference(widen(a_bits), widen(b_bits))).astype(np.float32))
        if not np.array_equal(out[64 * index : 64 * index + 64], expected):
            wrong.append(expression)
    assert wrong == []


@pytest.mark.parametrize(("pair", "kind"), [("__half2", "f16"), ("__nv_bfloat162", "bf16")])
def test_packed_arithmetic(run: RUN, pair: str, kind: str) -> None:
    generator = np.random.default_rng(4)
    values = generator.standard_normal((3, 64)).astype(np.float32)
    bits = [to_bfloat(v) if kind == "bf16" else v.astype(np.float16).view(np.uint16) for v in values]
    widen: Callable[[Any], Any] = from_bfloat if kind == "bf16" else lambda x: x.view(np.float16).astype(np.float32)
    source = f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const {pair}* a, const {pair}* b, const {pair}* c, {pair}* out, float2* wide) {{
        int i = threadIdx.x;
        out[i] = __hfma2(a[i], b[i], c[i]);
        out[32 + i] = __hadd2(a[i], b[i]);
        out[64 + i] = __hmul2(a[i], b[i]);
        wide[i] = {"__half22float2" if kind == "f16" else "__bfloat1622float2"}(__hmax2(a[i], b[i]));
    }}"""
    out, wide = np.zeros(192, np.uint16), np.zeros(64, np.float32)
    buffers = [Buffer(name, array, False) for name, array in zip("abc", bits, strict=True)]
    report = run(source, 1, 32, *buffers, Buffer("out", out, True), Buffer("wide", wide, True))
    assert report.finding is None, report.finding
    a, b, c = (widen(x).astype(float) for x in bits)
    narrow: Callable[[Any], Any] = to_bfloat if kind == "bf16" else lambda x: x.astype(np.float16).view(np.uint16)
    expected = np.concatenate([narrow(x.astype(np.float32)) for x in (a * b + c, a + b, a * b)])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(wide, np.maximum(a, b).astype(np.float32))


def test_atomic_addition_of_short_floats(run: RUN) -> None:
    source = """#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(__half* h, __half2* h2, __nv_bfloat16* b) {
        atomicAdd(h, __float2half(0.25f));
        atomicAdd(h2, __floats2half2_rn(1.0f, 0.5f));
        atomicAdd(b + 1, __float2bfloat16(2.0f));
    }"""
    half, pair, brain = np.zeros(1, np.float16), np.zeros(2, np.float16), np.zeros(2, np.uint16)
    buffers = [Buffer("h", half, True), Buffer("h2", pair, True), Buffer("b", brain, True)]
    report = run(source, 1, 64, *buffers)
    assert report.finding is None, report.finding
    assert half[0] == 16.0
    assert pair.tolist() == [64.0, 32.0]
    assert from_bfloat(brain).tolist() == [0.0, 128.0]
