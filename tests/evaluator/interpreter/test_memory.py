"""Loads and stores of every width and space, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.evaluator.interpreter import Buffer, LaunchReport, PtxModule, launch

RUN = Callable[..., LaunchReport]


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("signed char", np.int8),
        ("unsigned char", np.uint8),
        ("short", np.int16),
        ("unsigned short", np.uint16),
        ("int", np.int32),
        ("float", np.float32),
        ("long long", np.int64),
        ("double", np.float64),
    ],
)
def test_elements_of_every_width_are_copied_and_widened(run: RUN, element: str, dtype: Any) -> None:
    source = f"""extern "C" __global__ void k(const {element}* x, {element}* y, double* wide) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i]; wide[i] = (double)x[i];
    }}"""
    x = (np.random.default_rng(1).standard_normal(64) * 100).astype(dtype)
    y, wide = np.zeros(64, dtype), np.zeros(64)
    report = run(source, 2, 32, Buffer("x", x, False), Buffer("y", y, True), Buffer("wide", wide, True))
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(wide, x.astype(float))


def test_vectors_and_cache_hints(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float4* a, const double2* b, const int2* c,
                                       float4* x, double2* y, int2* z) {
        int i = threadIdx.x; float4 v = __ldcs(a + i); v.x += __ldg((const float*)a); __stcs(x + i, v);
        y[i] = __ldcg(b + i); z[i] = __ldlu(c + i);
        const int* p = (const int*)c; int h;
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.s32 %0, [%1];" : "=r"(h) : "l"(p)); z[i].x += h;
    }"""
    generator = np.random.default_rng(2)
    a, b = generator.standard_normal(128).astype(np.float32), generator.standard_normal(64)
    c = generator.integers(0, 9, 64, np.int32)
    x, y, z = np.zeros(128, np.float32), np.zeros(64), np.zeros(64, np.int32)
    inputs = [Buffer("a", a, False), Buffer("b", b, False), Buffer("c", c, False)]
    outputs = [Buffer("x", x, True), Buffer("y", y, True), Buffer("z", z, True)]
    report = run(source, 1, 32, *inputs, *outputs)
    assert report.finding is None, report.finding
    shifted, counted = a.copy(), c.copy()
    shifted[::4] += a[0]
    counted[::2] += c[0]
    np.testing.assert_array_equal(x, shifted)
    np.testing.assert_array_equal(y, b)
    np.testing.assert_array_equal(z, counted)


def test_constants_local_arrays_and_generic_pointers(run: RUN) -> None:
    source = """__constant__ int table[8] = {1, 1, 2, 3, 5, 8, 13, 21};
    __device__ int weights[4] = {7, 6, 5, 4}; __device__ int* pointer = weights + 1;
    extern "C" __global__ void k(const int* x, int* y, int n) {
        __shared__ int tile[32]; int local[8], t = threadIdx.x;
        for (int i = 0; i < 8; i++) local[i * n & 7] = table[i] + t;
        tile[t] = x[t];
        int* p = t & 1 ? tile + t : local + (t >> 1 & 7); *p += 1000;
        y[t] = *p + local[(t + 1) & 7] + pointer[t & 1];
    }"""
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    report = run(source, 1, 32, Buffer("x", x, False), Buffer("y", y, True), 3)
    assert report.finding is None, report.finding
    table, expected = [1, 1, 2, 3, 5, 8, 13, 21], []
    for t in range(32):
        local = [0] * 8
        for i in range(8):
            local[i * 3 & 7] = table[i] + t
        if t & 1:
            value = t + 1000
        else:
            local[t >> 1 & 7] += 1000
            value = local[t >> 1 & 7]
        expected.append(value + local[t + 1 & 7] + [6, 5][t & 1])
    assert y.tolist() == expected


def test_dynamic_shared_memory_and_three_dimensional_launches(run: RUN) -> None:
    source = """extern "C" __global__ void k(int* y) {
        extern __shared__ int tile[];
        int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        tile[t] = 100 * b + t; __syncthreads();
        y[b * 24 + t] = tile[23 - t];
    }"""
    y = np.zeros(12 * 24, np.int32)
    report = run(source, (2, 3, 2), (2, 3, 4), Buffer("y", y, True), dynamic_shared_bytes=96)
    assert report.finding is None, report.finding
    assert y.tolist() == [100 * b + 23 - t for b in range(12) for t in range(24)]


def test_structures_pass_by_value(run: RUN, load: Callable[[str], PtxModule]) -> None:
    source = """extern "C" __global__ void k(long long big, float f, double d, short s, unsigned char c, double* out) {
        out[0] = big; out[1] = f; out[2] = d; out[3] = s; out[4] = c;
    }"""
    out = np.zeros(5)
    report = run(source, 1, 1, -(2**40), 0.5, 0.1, -7, 200, Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert out.tolist() == [-(2.0**40), 0.5, 0.1, -7, 200]
    assert load(source).kernels["k"].parameters[:3] == (("u64", 8), ("f32", 4), ("f64", 8))


def test_device_variables_keep_their_values_between_launches(load: Callable[[str], PtxModule]) -> None:
    module = load('__device__ int counter = 5; extern "C" __global__ void k(int* y) { y[0] = counter++; }')
    y = np.zeros(1, np.int32)
    for expected in (5, 6, 7):
        assert launch(module, "k", 1, 1, [Buffer("y", y, True)]).finding is None
        assert y[0] == expected


def test_arguments_that_do_not_fit_the_kernel_are_refused(load: Callable[[str], PtxModule]) -> None:
    module = load('extern "C" __global__ void k(int* y, int n) { y[0] = n; }')
    y = Buffer("y", np.zeros(1, np.int32), True)
    wrong: tuple[list[Buffer | int | float], ...] = ([y], [y, 1, 2], [1, y], [y, 0.5])
    for arguments in wrong:
        with pytest.raises(ValueError, match="argument"):
            launch(module, "k", 1, 1, arguments)
    with pytest.raises(ValueError, match="contiguous"):
        Buffer("y", np.zeros((2, 2)), True)


COPY = 'extern "C" __global__ void k(const float* x, float* y, int s) { y[threadIdx.x] = x[threadIdx.x * s + %s]; }'


@pytest.mark.parametrize(
    ("stride", "offset", "sectors"), [(1, "0", 4), (1, "1", 5), (2, "0", 8), (8, "0", 32), (0, "0", 1)]
)
def test_sectors_follow_from_the_addresses_of_a_warp(run: RUN, stride: int, offset: str, sectors: int) -> None:
    x, y = np.zeros(256, np.float32), np.zeros(32, np.float32)
    counts = run(COPY % offset, 1, 32, Buffer("x", x, False), Buffer("y", y, True), stride).counts
    assert (counts.global_load_requests, counts.global_load_sectors) == (1, sectors)
    assert (counts.global_store_requests, counts.global_store_sectors) == (1, 4)
    assert (counts.unique_sectors_read, counts.unique_sectors_written) == (sectors, 4)


def test_a_buffer_can_start_off_its_alignment(run: RUN) -> None:
    x, y = np.zeros(256, np.float32), np.zeros(32, np.float32)
    counts = run(COPY % "0", 1, 32, Buffer("x", x, False, offset_bytes=4), Buffer("y", y, True), 1).counts
    assert counts.global_load_sectors == 5


def test_repeated_reads_hit_the_first_level_cache_and_touch_memory_once(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int n) {
        float s = 0; for (int i = 0; i < n; i++) s += x[threadIdx.x * n + i]; y[threadIdx.x] = s; }"""
    x, y = np.ones(256, np.float32), np.zeros(32, np.float32)
    counts = run(source, 1, 32, Buffer("x", x, False), Buffer("y", y, True), 8).counts
    assert counts.global_load_sectors == 256
    assert counts.l1_hit_sectors == 256 - 32
    assert counts.unique_sectors_read == 32


@pytest.mark.parametrize(("stride", "wavefronts"), [(1, 1), (2, 2), (32, 32), (33, 1), (0, 1)])
def test_bank_conflicts_are_counted(run: RUN, stride: int, wavefronts: int) -> None:
    source = """extern "C" __global__ void k(int* y, int s) {
        __shared__ int tile[1056]; for (int i = threadIdx.x; i < 1056; i += 32) tile[i] = i; __syncwarp();
        y[threadIdx.x] = tile[threadIdx.x * s]; }"""
    y = np.zeros(32, np.int32)
    counts = run(source, 1, 32, Buffer("y", y, True), stride).counts
    assert counts.shared_wavefronts - 33 == wavefronts
    assert counts.shared_requests == 34


def test_work_is_attributed_to_source_lines(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int n) {
        float s = 0;
        #pragma unroll 1
        for (int i = 0; i < n; i++)
            s += x[i * 32 + threadIdx.x];
        y[threadIdx.x] = s;
    }"""
    x, y = np.ones(3200, np.float32), np.zeros(32, np.float32)
    counts = run(source, 1, 32, Buffer("x", x, False), Buffer("y", y, True), 100).counts
    assert counts.lines[0].line in (4, 5)
    assert sum(line.sectors for line in counts.lines if line.line == 5) == 400
    assert counts.warp_instructions == sum(line.warp_instructions for line in counts.lines)
    assert counts.longest_warp_waits >= 100


def test_a_stride_over_blocks_runs_a_sample(run: RUN) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }'
    y = np.zeros(64 * 32, np.float32)
    counts = run(source, 64, 32, Buffer("y", y, True), block_stride=16).counts
    assert counts.blocks == 4
    assert y.sum() == 4 * 32


def test_an_address_of_32_bits_wraps_around(run: RUN) -> None:
    """The compiler counts from before an array in shared memory where it knows that what follows leads back into it."""
    source = """extern "C" __global__ void k(float* y) {
        __shared__ float held[64]; held[threadIdx.x] = threadIdx.x; held[threadIdx.x + 32] = threadIdx.x + 32;
        __syncthreads();
        if (threadIdx.x) return;
        unsigned before = (unsigned)__cvta_generic_to_shared(held) - 40; float entry, copied;
        asm volatile("ld.shared.f32 %0, [%1+60];" : "=f"(entry) : "r"(before) : "memory");
        asm volatile("st.shared.f32 [%0+168], %1;" :: "r"(before), "f"(entry) : "memory");
        asm volatile("ld.shared.f32 %0, [%1+168];" : "=f"(copied) : "r"(before) : "memory");
        y[0] = copied;
    }"""
    y = np.zeros(1, np.float32)
    report = run(source, 1, 32, Buffer("y", y, True))
    assert report.finding is None, report.finding
    assert y[0] == 5
