"""Warp functions, barriers, atomics, divergence: how threads work together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from services.evaluator.interpreter import Buffer, LaunchReport, nothing_written
from sparsesmith.elements import dtype_of

RUN = Callable[..., LaunchReport]


def words(
    run: RUN, body: str, values: NDArray[np.int32], num_results: int = 32, threads: int = 32
) -> NDArray[np.int32]:
    """Results out[...] of a body that sees lane t and value v."""
    source = f"""extern "C" __global__ void k(const int* in, int* out) {{
        int t = threadIdx.x, v = in[t]; {body}
    }}"""
    out = np.zeros(num_results, np.int32)
    report = run(source, 1, threads, Buffer("in", values, False), Buffer("out", out, True))
    assert report.finding is None, report.finding
    return out


LANES = np.arange(32, dtype=np.int32)


@pytest.mark.parametrize(
    ("call", "source_lane"),
    [
        ("__shfl_sync(~0u, v, t + 3)", lambda t: (t + 3) % 32),
        ("__shfl_sync(~0u, v, 2, 8)", lambda t: t // 8 * 8 + 2),
        ("__shfl_up_sync(~0u, v, 5)", lambda t: np.where(t >= 5, t - 5, t)),
        ("__shfl_up_sync(~0u, v, 3, 8)", lambda t: np.where(t % 8 >= 3, t - 3, t)),
        ("__shfl_down_sync(~0u, v, 5)", lambda t: np.where(t < 27, t + 5, t)),
        ("__shfl_down_sync(~0u, v, 1, 4)", lambda t: np.where(t % 4 < 3, t + 1, t)),
        ("__shfl_xor_sync(~0u, v, 9)", lambda t: t ^ 9),
        ("__shfl_xor_sync(~0u, v, 2, 4)", lambda t: t ^ 2),
    ],
)
def test_shuffles_read_the_lane_they_name(run: RUN, call: str, source_lane: Callable[..., NDArray[np.int32]]) -> None:
    values = np.random.default_rng(1).integers(0, 1000, 32, np.int32)
    np.testing.assert_array_equal(words(run, f"out[t] = {call};", values), values[source_lane(LANES)])


def test_a_shuffle_of_doubles_moves_both_halves(run: RUN) -> None:
    source = (
        """extern "C" __global__ void k(double* x) { x[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 16); }"""
    )
    values = np.random.default_rng(2).standard_normal(32)
    expected = np.concatenate([values[16:], values[16:]])
    assert run(source, 1, 32, Buffer("x", values, True)).finding is None
    np.testing.assert_array_equal(values, expected)


def test_votes_matches_and_reductions(run: RUN) -> None:
    values = np.array([3, 5, 3, 7] * 8, np.int32)
    body = """
        int all; unsigned same = __match_any_sync(~0u, v), whole = __match_all_sync(~0u, v, &all);
        int r[] = {(int)__ballot_sync(~0u, v == 3), __any_sync(~0u, v == 7), __all_sync(~0u, v == 7),
                   __all_sync(~0u, v > 2), (int)same, (int)whole, all, (int)__reduce_add_sync(~0u, v),
                   __reduce_min_sync(~0u, v - 6), (int)__reduce_max_sync(~0u, (unsigned)v),
                   (int)__reduce_or_sync(~0u, (unsigned)v), (int)__reduce_xor_sync(~0u, (unsigned)v),
                   (int)__activemask()};
        for (int i = 0; i < 13; i++) out[i * 32 + t] = r[i];
    """
    results = words(run, body, values, 13 * 32).reshape(13, 32)
    every_second, first, last = 0x55555555, 0x22222222, 0x88888888 - (1 << 32)
    assert results[[0, 1, 2, 3]].T.tolist() == [[every_second, 1, 0, 1]] * 32
    assert results[4].tolist() == [every_second, first, every_second, last] * 8
    assert results[[5, 6, 7, 8, 9, 10, 11, 12]].T.tolist() == [[0, 0, 144, -3, 7, 7, 0, -1]] * 32


def test_collectives_of_half_a_warp_in_divergent_code(run: RUN) -> None:
    body = """
        if (t < 16) out[t] = __shfl_xor_sync(0x0000ffffu, v, 1);
        else { v *= 2; out[t] = __reduce_add_sync(0xffff0000u, v); }
    """
    expected = np.concatenate([LANES[:16] ^ 1, np.full(16, 2 * LANES[16:].sum())])
    np.testing.assert_array_equal(words(run, body, LANES), expected)


def test_lanes_that_leave_early_do_not_block_the_rest(run: RUN) -> None:
    body = "if (t >= 20) return; out[t] = 1; __syncwarp(); out[t] += __popc(__ballot_sync(__activemask(), 1));"
    assert words(run, body, LANES).tolist() == [21] * 20 + [0] * 12


def test_lanes_meet_again_after_loops_of_different_length(run: RUN) -> None:
    body = """
        int sum = 0;
        for (int i = 0; i < v; i++) { if (i & 1) continue; if (sum > 20) break; sum += i; }
        out[t] = sum; out[32 + t] = __activemask();
    """
    results = words(run, body, LANES, 64)

    def loop(v: int) -> int:
        total = 0
        for i in range(0, v, 2):
            if total > 20:
                break
            total += i
        return total

    assert results[:32].tolist() == [loop(v) for v in range(32)]
    assert results[32:].tolist() == [-1] * 32


def test_a_switch_takes_every_branch(run: RUN) -> None:
    cases = "".join(f"case {i}: out[t] = {i * i + 1} * v; break;" for i in range(12))
    results = words(run, f"switch (v % 13) {{ {cases} default: out[t] = -1; }}", LANES)
    assert results.tolist() == [-1 if v % 13 == 12 else ((v % 13) ** 2 + 1) * v for v in range(32)]


def test_a_computed_branch_uses_its_table(load: Callable[[str], object], run: RUN) -> None:
    source = """extern "C" __global__ void k(const int* in, int* out) {
        int t = threadIdx.x;
        asm volatile("{ .reg .b32 r; ld.global.u32 r, [%0];\\n"
            "ts: .branchtargets A, B, C;\\n brx.idx r, ts;\\n"
            "A: mov.u32 r, 10; bra.uni E;\\n B: mov.u32 r, 20; bra.uni E;\\n C: mov.u32 r, 30;\\n"
            "E: st.global.u32 [%1], r; }" :: "l"(in + t), "l"(out + t) : "memory");
    }"""
    choices, out = np.arange(32, dtype=np.int32) % 3, np.zeros(32, np.int32)
    report = run(source, 1, 32, Buffer("in", choices, False), Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert out.tolist() == [10 * (c + 1) for c in choices]


def test_functions_that_are_not_inlined_are_called(run: RUN) -> None:
    source = """
    struct Pair { int a; double b; };
    extern "C" __device__ __noinline__ Pair split(int v, float f) { Pair p; p.a = v * 2; p.b = v + f; return p; }
    extern "C" __device__ __noinline__ int twice(int v) { if (v > 16) return split(v, 0.5f).a; return v; }
    extern "C" __global__ void k(const int* in, double* out) {
        int v = in[threadIdx.x]; Pair p = split(v, 0.25f);
        if (v & 1) out[threadIdx.x] = twice(v); else out[threadIdx.x] = p.a + p.b;
    }"""
    out = np.zeros(32)
    report = run(source, 1, 32, Buffer("in", LANES.copy(), False), Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert out.tolist() == [(2 * v if v > 16 else v) if v & 1 else 3 * v + 0.25 for v in range(32)]


def test_a_recursive_function_is_refused(load: Callable[[str], object]) -> None:
    from services.evaluator.interpreter import UnsupportedPtx

    source = """extern "C" __device__ __noinline__ int f(int n, int* x) {
        return n < 2 ? x[n] : f(n - 1, x) * f(n - 2, x); }
    extern "C" __global__ void k(int* x, int n) { x[0] = f(n, x); }"""
    with pytest.raises(UnsupportedPtx, match="recursively"):
        load(source)


def test_barriers_order_shared_memory(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y) {
        __shared__ float tile[256]; int t = threadIdx.x;
        tile[t] = x[blockIdx.x * 256 + t]; __syncthreads();
        for (int s = 128; s > 0; s >>= 1) { if (t < s) tile[t] += tile[t + s]; __syncthreads(); }
        if (t == 0) y[blockIdx.x] = tile[0];
    }"""
    x, y = np.random.default_rng(3).integers(0, 100, 2048).astype(np.float32), np.zeros(8, np.float32)
    report = run(source, 8, 256, Buffer("x", x, False), Buffer("y", y, True))
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, x.reshape(8, 256).sum(axis=1))
    assert report.counts.barriers == 8 * 9


def test_barriers_that_count_and_vote(run: RUN) -> None:
    body = """
        int n = __syncthreads_count(v & 1), all = __syncthreads_and(v < 90), some = __syncthreads_or(v == 77);
        out[t] = n * 100 + all * 10 + some;
    """
    results = words(run, body, np.arange(96, dtype=np.int32), 96, threads=96)
    assert results.tolist() == [4801] * 96


def test_named_barriers_join_only_their_warps(run: RUN) -> None:
    source = """extern "C" __global__ void k(int* out) {
        __shared__ int box[2]; int w = threadIdx.x / 32, pair = w / 2;
        if (w % 2 == 0) { if (threadIdx.x % 32 == 0) box[pair] = 10 + pair;
            asm volatile("bar.arrive %0, 64;" :: "r"(pair + 1) : "memory"); }
        else { asm volatile("bar.sync %0, 64;" :: "r"(pair + 1) : "memory"); out[threadIdx.x] = box[pair]; }
    }"""
    out = np.zeros(128, np.int32)
    report = run(source, 1, 128, Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert out.reshape(4, 32)[:, 0].tolist() == [0, 10, 0, 11]


@pytest.mark.parametrize(
    ("element", "dtype", "call", "start", "expected"),
    [
        ("int", np.int32, "atomicAdd(x, i)", 5, 5 + 96 * 95 // 2),
        ("int", np.int32, "atomicSub(x, i)", 5, 5 - 96 * 95 // 2),
        ("int", np.int32, "atomicMin(x, i - 40)", 3, -40),
        ("unsigned", np.uint32, "atomicMax(x, i - 40u)", 3, 2**32 - 1),
        ("int", np.int32, "atomicMax(x, i - 200)", -500, -105),
        ("unsigned", np.uint32, "atomicAnd(x, ~(1u << (i & 7)))", 0xFFFF, 0xFF00),
        ("unsigned", np.uint32, "atomicOr(x, 1u << (i & 31))", 0, 2**32 - 1),
        ("unsigned", np.uint32, "atomicXor(x, i)", 0, 0),
        ("unsigned", np.uint32, "atomicInc(x, 9u)", 0, 96 % 10),
        ("unsigned", np.uint32, "atomicDec(x, 9u)", 0, 4),
        ("float", np.float32, "atomicAdd(x, 0.5f)", 1, 49),
        ("double", np.float64, "atomicAdd(x, 0.5)", 1, 49),
        ("unsigned long long", np.uint64, "atomicAdd(x, 1ull << 40)", 0, 96 << 40),
        ("long long", np.int64, "atomicMin(x, (long long)-i)", 0, -95),
        ("unsigned long long", np.uint64, "atomicMax(x, ~0ull - i)", 0, 2**64 - 1),
    ],
)
def test_atomic_operations(run: RUN, element: str, dtype: type, call: str, start: float, expected: float) -> None:
    source = (
        f"""extern "C" __global__ void k({element}* x) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {call}; }}"""
    )
    value: NDArray[Any] = np.array([start], dtype)
    report = run(source, 2, 48, Buffer("x", value, True))
    assert report.finding is None, report.finding
    assert value[0] == np.array([expected]).astype(dtype)[0]
    assert report.counts.global_atomic_requests == 4


def test_atomics_return_the_old_value_and_work_in_shared_memory(run: RUN) -> None:
    source = """extern "C" __global__ void k(int* out) {
        __shared__ int next; if (threadIdx.x == 0) next = 100; __syncthreads();
        out[threadIdx.x] = atomicAdd(&next, 1);
        int expected = 160; if (threadIdx.x == 63) out[64] = atomicCAS(&next, expected + 4, 7);
        __syncthreads(); if (threadIdx.x == 0) { out[65] = next; out[66] = atomicExch(&next, 1); }
    }"""
    out = np.zeros(67, np.int32)
    report = run(source, 1, 64, Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert sorted(out[:64].tolist()) == list(range(100, 164))
    assert out[64:].tolist() == [164, 7, 7]


def test_a_lock_between_lanes_of_one_warp_makes_progress(run: RUN) -> None:
    source = """extern "C" __global__ void k(int* lock, volatile int* sum) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) { *sum = *sum + 1; __threadfence(); atomicExch(lock, 0); done = true; }
        }
    }"""
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    report = run(source, 2, 64, Buffer("lock", lock, True), Buffer("sum", total, True))
    assert report.finding is None, report.finding
    assert (lock[0], total[0]) == (0, 128)


def test_the_last_block_adds_up_what_the_others_wrote_behind_a_fence(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float* x, float* partial, unsigned* ticket, float* y) {
        __shared__ bool last; int t = threadIdx.x;
        float v = x[blockIdx.x * 32 + t];
        for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
        if (t == 0) { partial[blockIdx.x] = v; __threadfence(); last = atomicAdd(ticket, 1) == gridDim.x - 1; }
        __syncthreads();
        if (last) { __threadfence(); if (t == 0) {
            float s = 0; for (int i = 0; i < gridDim.x; i++) s += partial[i]; *y = s; } }
    }"""
    x = np.random.default_rng(4).integers(0, 50, 320).astype(np.float32)
    partial, ticket, y = np.zeros(10, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    buffers = [
        Buffer("x", x, False),
        Buffer("partial", partial, True, nothing_written(partial)),
        Buffer("ticket", ticket, True),
    ]
    report = run(source, 10, 32, *buffers, Buffer("y", y, True))
    assert report.finding is None, report.finding
    assert y[0] == x.sum()


def test_a_block_may_wait_for_an_earlier_one(run: RUN) -> None:
    source = """extern "C" __global__ void k(const int* x, int* prefix, volatile int* flag) {
        int b = blockIdx.x, before = 0;
        if (b > 0) { while (flag[b - 1] == 0) {} __threadfence(); before = prefix[b - 1]; }
        prefix[b] = before + x[b]; __threadfence(); flag[b] = 1;
    }"""
    x, prefix, flag = np.arange(1, 9, dtype=np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32)
    report = run(source, 8, 1, Buffer("x", x, False), Buffer("prefix", prefix, True), Buffer("flag", flag, True))
    assert report.finding is None, report.finding
    assert prefix.tolist() == np.cumsum(x).tolist()


def test_warps_of_a_block_may_wait_for_each_other_through_shared_memory(run: RUN) -> None:
    source = """extern "C" __global__ void k(int* out) {
        __shared__ volatile int flag; if (threadIdx.x == 32) flag = 0; __syncthreads();
        if (threadIdx.x < 32) { while (flag == 0) {} out[threadIdx.x] = flag; }
        else if (threadIdx.x == 32) flag = 5;
    }"""
    out = np.zeros(32, np.int32)
    report = run(source, 1, 64, Buffer("out", out, True))
    assert report.finding is None, report.finding
    assert out.tolist() == [5] * 32


def test_cooperative_groups(run: RUN) -> None:
    source = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(const float* x, float* y) {
        auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block);
        float sum = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>()); block.sync();
        if (tile.thread_rank() == 0) y[block.thread_rank() / 8] = sum;
        if (block.thread_rank() % 3 == 0) {
            auto group = cg::coalesced_threads();
            int n = cg::reduce(group, 1, cg::plus<int>());
            if (group.thread_rank() == 0 && block.thread_rank() < 32) y[8] = n;
        }
    }"""
    x, y = np.random.default_rng(5).integers(0, 9, 64).astype(np.float32), np.zeros(9, np.float32)
    report = run(source, 1, 64, Buffer("x", x, False), Buffer("y", y, True))
    assert report.finding is None, report.finding
    assert y.tolist() == [*x.reshape(8, 8).sum(axis=1), 11]


def test_cub_block_and_warp_primitives(run: RUN) -> None:
    source = """#include <cub/block/block_reduce.cuh>
    #include <cub/block/block_scan.cuh>
    #include <cub/warp/warp_scan.cuh>
    extern "C" __global__ void k(const int* x, int* scanned, int* sums, int* warp_scanned) {
        using Reduce = cub::BlockReduce<int, 128>; using Scan = cub::BlockScan<int, 128>;
        using Warp = cub::WarpScan<int>;
        __shared__ typename Reduce::TempStorage r; __shared__ typename Scan::TempStorage s;
        __shared__ typename Warp::TempStorage w[4];
        int t = threadIdx.x, v = x[t], before, inclusive;
        int sum = Reduce(r).Sum(v); if (t == 0) sums[0] = sum;
        Scan(s).ExclusiveSum(v, before); scanned[t] = before;
        Warp(w[t / 32]).InclusiveSum(v, inclusive); warp_scanned[t] = inclusive;
    }"""
    x = np.random.default_rng(6).integers(0, 100, 128, np.int32)
    scanned, sums, by_warp = np.zeros(128, np.int32), np.zeros(1, np.int32), np.zeros(128, np.int32)
    buffers = [Buffer("scanned", scanned, True), Buffer("sums", sums, True), Buffer("warp_scanned", by_warp, True)]
    report = run(source, 1, 128, Buffer("x", x, False), *buffers)
    assert report.finding is None, report.finding
    assert sums[0] == x.sum()
    assert scanned.tolist() == (np.cumsum(x) - x).tolist()
    assert by_warp.tolist() == np.cumsum(x.reshape(4, 32), axis=1).ravel().tolist()


def test_a_block_barrier_object_with_asynchronous_copies(run: RUN) -> None:
    source = """#include <cuda/barrier>
    #include <cooperative_groups.h>
    extern "C" __global__ void k(const float* x, float* y) {
        __shared__ cuda::barrier<cuda::thread_scope_block> ready; __shared__ alignas(16) float tile[128];
        auto block = cooperative_groups::this_thread_block();
        if (threadIdx.x == 0) init(&ready, blockDim.x); __syncthreads();
        cuda::memcpy_async(block, tile, x, sizeof(tile), ready);
        ready.arrive_and_wait();
        y[threadIdx.x] = tile[127 - threadIdx.x];
    }"""
    x, y = np.random.default_rng(7).standard_normal(128).astype(np.float32), np.zeros(128, np.float32)
    report = run(source, 1, 128, Buffer("x", x, False), Buffer("y", y, True))
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, x[::-1])


def test_copy_groups_fill_shared_memory(run: RUN) -> None:
    source = """#include <cuda_pipeline.h>
    extern "C" __global__ void k(const float* x, float* y) {
        __shared__ alignas(16) float tile[256];
        __pipeline_memcpy_async(tile + threadIdx.x * 4, x + threadIdx.x * 4, 16);
        __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
        y[threadIdx.x] = tile[threadIdx.x] + tile[255 - threadIdx.x];
    }"""
    x, y = np.random.default_rng(8).standard_normal(256).astype(np.float32), np.zeros(64, np.float32)
    report = run(source, 1, 64, Buffer("x", x, False), Buffer("y", y, True))
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, x[:64] + x[::-1][:64])


MULTIPLY = """extern "C" __global__ void k(const unsigned* a, const unsigned* b, const float* c, float* d) {
    int t = threadIdx.x; float sum[4];
    for (int i = 0; i < 4; i++) sum[i] = c[i * 32 + t];
    MASK asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[t]), "r"(a[32 + t]), "r"(a[64 + t]), "r"(a[96 + t]), "r"(b[t]), "r"(b[32 + t]));
    for (int i = 0; i < 4; i++) d[i * 32 + t] = sum[i];
}"""


def multiplied(run: RUN, type_: str, mask: str = "") -> tuple[NDArray[Any], NDArray[Any], LaunchReport]:
    """The product of 16 x 16 and 16 x 8 numbers on top of others, and what it should be. Registers of a lane hold the
    numbers that the PTX ISA names: g = lane / 4, t = lane % 4."""
    dtype = np.dtype(np.float16) if type_ == "f16" else dtype_of("bfloat16")
    generator = np.random.default_rng(8)
    left, right, before = (generator.uniform(-2, 2, shape) for shape in ((16, 16), (16, 8), (16, 8)))
    left, right, before = left.astype(dtype), right.astype(dtype), before.astype(np.float32)
    left[3, 5], right[0, 0] = 2.0**-20, -(2.0**-24)
    g, t = LANES // 4, LANES % 4
    a = [left[g + 8 * (i % 2), 2 * t + 8 * (i // 2) + half] for i in range(4) for half in range(2)]
    b = [right[2 * t + 8 * i + half, g] for i in range(2) for half in range(2)]
    places = [(g + 8 * (i // 2), 2 * t + i % 2) for i in range(4)]
    found = np.zeros(128, np.float32)
    report = run(
        MULTIPLY.replace("TYPE", type_).replace("MASK", mask), 1, 32,
        *(Buffer(name, np.stack(rows, -1).reshape(32, -1, 2).transpose(1, 0, 2).reshape(-1).view(np.uint32), False)
          for name, rows in (("a", a), ("b", b))),
        Buffer("c", np.concatenate([before[place] for place in places]), False), Buffer("d", found, True),
    )  # fmt: skip
    right_sums = before.astype(np.float64) + left.astype(np.float64) @ right.astype(np.float64)
    return found, np.concatenate([right_sums[place] for place in places]), report


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_a_warp_multiplies_16_by_16_and_16_by_8_numbers_of_16_bits(run: RUN, type_: str) -> None:
    found, expected, report = multiplied(run, type_)
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_a_product_that_half_a_warp_comes_to_waits_for_the_other(run: RUN) -> None:
    _, _, report = multiplied(run, "f16", "if (t < 16)")
    assert report.finding is not None
    assert report.finding.kind == "deadlock"
