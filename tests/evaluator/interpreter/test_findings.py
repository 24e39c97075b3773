"""What a program does wrong is found, and named with line, block and thread; nothing it does harms the process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from services.evaluator.interpreter import (
    Buffer,
    Finding,
    LaunchReport,
    PtxModule,
    UnsupportedPtx,
    launch,
    load_module,
    nothing_written,
)

RUN = Callable[..., LaunchReport]


def finding_of(run: RUN, body: str, grid: int = 1, threads: int = 32, **options: int) -> Finding:
    """The finding of `report_of`."""
    finding = report_of(run, body, grid, threads, **options).finding
    assert finding is not None
    return finding


def report_of(run: RUN, body: str, grid: int = 1, threads: int = 32, **options: int) -> LaunchReport:
    """Of a body on line 2 with arrays x (100 floats, read only), y (100 floats) and n = 100."""
    head = 'extern "C" __global__ void k(const float* x, float* y, int n) { int t = threadIdx.x, b = blockIdx.x;'
    source = f"{head}\n{body}\n}}"
    x, y = Buffer("x", np.ones(100, np.float32), False), Buffer("y", np.zeros(100, np.float32), True)
    return run(source, grid, threads, x, y, 100, **options)


def test_a_read_past_the_end_names_buffer_index_line_block_and_thread(run: RUN) -> None:
    finding = finding_of(run, "y[b * 32 + t] = x[b * 32 + t + 10];", grid=3)
    assert finding == Finding(
        "out_of_bounds",
        "out-of-bounds read of 4 bytes: x[100] (x has 100 elements) (line 2, block (2, 0, 0), thread (26, 0, 0))",
        2,
        (2, 0, 0),
        (26, 0, 0),
    )


def test_a_write_before_the_start_is_out_of_bounds(run: RUN) -> None:
    finding = finding_of(run, "y[t - 1] = 1;")
    assert finding.kind == "out_of_bounds"
    assert "write of 4 bytes: y[-1]" in finding.message
    assert finding.thread == (0, 0, 0)


@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        ("(float*)0", "null pointer"),
        ("(float*)0x123456789abcdef0ull", "it belongs to no buffer"),
        ("(float*)~15ull", "it belongs to no buffer"),
        ("(float*)(size_t)0x10000000000ull", "shared memory"),
        ("y + (1ll << 40)", "it belongs to no buffer"),
        ("(float*)((char*)y - (x - (const float*)0) * 4)", "null pointer"),
    ],
)
def test_wild_pointers_do_no_harm(run: RUN, pointer: str, words: str) -> None:
    finding = finding_of(run, f"volatile float* p = {pointer}; y[t] = *p; *p = 3;")
    assert finding.kind in ("out_of_bounds", "misaligned")
    assert finding.line == 2


def test_every_address_is_safe(run: RUN, load: Callable[[str], PtxModule]) -> None:
    module = load('extern "C" __global__ void k(unsigned long long a, int* y) { *(int*)a = 7; y[0] = *(int*)(a + 4); }')
    addresses = np.random.default_rng(1).integers(0, 2**64, 200, np.uint64)
    special = [
        0,
        1 << 40,
        (1 << 40) + 4096,
        2 << 40,
        3 << 40,
        4 << 40,
        0x7000_0000_0000 - 4,
        2**63,
        2**64 - 4,
        2**64 - 8,
    ]
    for address in [*(int(a) & ~3 for a in addresses), *special]:
        y = np.zeros(1, np.int32)
        report = launch(module, "k", 1, 1, [address, Buffer("y", y, True)])
        assert report.finding is not None
        assert report.finding.kind in ("out_of_bounds", "write_to_read_only")
        assert y[0] == 0


def test_a_buffer_cannot_be_reached_from_its_neighbour(run: RUN) -> None:
    finding = finding_of(run, "y[t + (1 << 20)] = 1;")
    assert finding.kind == "out_of_bounds"
    assert "y[1048576]" in finding.message


def test_a_misaligned_access_is_found(run: RUN) -> None:
    finding = finding_of(run, "float2 v = ((const float2*)(x + 1))[t]; y[t] = v.x + v.y;")
    assert finding.kind == "misaligned"
    assert "x[1]" in finding.message


def test_a_write_to_an_input_is_found(run: RUN) -> None:
    finding = finding_of(run, "((float*)x)[t] = 1;")
    assert finding.kind == "write_to_read_only"
    assert "x[0]" in finding.message


def test_shared_arrays_do_not_run_into_each_other(run: RUN) -> None:
    body = "__shared__ float a[32], c[32]; a[t] = x[t]; c[t] = x[t]; __syncthreads(); y[t] = a[t + 1] + c[t];"
    finding = finding_of(run, body)
    assert finding.kind == "out_of_bounds"
    assert "shared array" in finding.message
    assert finding.thread == (31, 0, 0)


def test_dynamic_shared_memory_has_the_size_of_the_launch(run: RUN) -> None:
    finding = finding_of(run, "extern __shared__ float s[]; s[t] = x[t]; y[t] = s[t];", dynamic_shared_bytes=64)
    assert finding.kind == "out_of_bounds"
    assert "byte 64 of the dynamic shared memory" in finding.message
    assert finding.thread == (16, 0, 0)


def test_a_missing_barrier_between_warps_is_a_race(run: RUN) -> None:
    body = "__shared__ float s[64];\ns[t] = x[t];\ny[t] = s[63 - t];"
    finding = finding_of(run, body, threads=64)
    assert finding.kind in ("race", "uninitialised_shared")
    body = "__shared__ float s[64];\ns[t] = x[t]; __syncthreads();\ns[63 - t] = 2 * x[t];\n y[t] = s[t];"
    finding = finding_of(run, body, threads=64)
    assert finding.kind == "race"
    assert "line 4" in finding.message
    assert "block (0, 0, 0)" in finding.message


def test_overwriting_what_another_warp_still_reads_is_a_race(run: RUN) -> None:
    body = "__shared__ float s[64];\ns[t] = x[t]; __syncthreads();\nfloat v = s[63 - t];\ns[t] = v;"
    body += "\n__syncthreads(); y[t] = s[t];"
    finding = finding_of(run, body, threads=64)
    assert finding.kind == "race"
    assert finding.line in (4, 5)
    assert "byte 124 of shared array" in finding.message


def test_two_blocks_that_write_the_same_element_race(run: RUN) -> None:
    finding = finding_of(run, "if (t == 0) y[b / 2] = b;", grid=4)
    assert finding.kind == "race"
    assert finding.block == (1, 0, 0)
    assert "thread (0, 0, 0) of block (0, 0, 0) at line 2" in finding.message
    assert "race on y[0]" in finding.message


def test_reading_what_another_block_writes_is_a_race(run: RUN) -> None:
    finding = finding_of(run, "if (t == 0) y[b + 1] = y[b] + 1;", grid=4)
    assert finding.kind == "race"


def test_a_plain_write_beside_atomics_is_a_race(run: RUN) -> None:
    finding = finding_of(run, "if (b == 0 && t == 0) y[0] = 0;\natomicAdd(y, x[t]);", grid=2)
    assert finding.kind == "race"
    assert finding.line == 3


def test_lanes_that_store_different_values_in_one_place_race(run: RUN) -> None:
    finding = finding_of(run, "y[t / 2] = t;")
    assert finding.kind == "race"
    assert finding.thread == (1, 0, 0)


def test_lanes_that_store_the_same_value_do_not_race(run: RUN) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[threadIdx.x / 2] = 3; }'
    assert run(source, 1, 32, Buffer("y", np.zeros(16, np.float32), True)).finding is None


def test_races_are_not_looked_for_when_not_asked(run: RUN) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[0] = blockIdx.x; }'
    assert run(source, 4, 1, Buffer("y", np.zeros(1, np.float32), True), check_races=False).finding is None


def test_shared_memory_must_be_written_before_it_is_read(run: RUN) -> None:
    finding = finding_of(run, "__shared__ float s[32]; if (t < 20) s[t] = x[t]; __syncthreads(); y[t] = s[t];")
    assert finding.kind == "uninitialised_shared"
    assert "byte 80 of shared array" in finding.message
    assert finding.thread == (20, 0, 0)


def test_shared_memory_does_not_survive_from_block_to_block(run: RUN) -> None:
    finding = finding_of(
        run, "__shared__ float s[32]; if (b == 0) s[t] = x[t]; __syncthreads(); y[b * 32 + t] = s[t];", grid=2
    )
    assert finding.kind == "uninitialised_shared"
    assert finding.block == (1, 0, 0)


def test_an_output_must_be_written_before_it_is_read(run: RUN) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] += 1; }'
    y = np.zeros(32, np.float32)
    finding = run(source, 1, 32, Buffer("y", y, True, nothing_written(y))).finding
    assert finding is not None
    assert finding.kind == "uninitialised_read"
    assert "y[0]" in finding.message


def test_a_barrier_in_divergent_code_is_a_deadlock(run: RUN) -> None:
    finding = finding_of(run, "if (t < 16)\n__syncthreads();\ny[t] = 1;")
    assert finding.kind == "deadlock"
    assert finding.line == 3
    assert "bar.sync" in finding.message


def test_a_barrier_that_some_warps_never_reach_is_a_deadlock(run: RUN) -> None:
    body = "if (t < 32) { while (y[50] == 0) {} }\n__syncthreads(); y[t] = x[t];"
    finding = finding_of(run, body.replace("y[50]", "((volatile float*)y)[50]"), threads=64)
    assert finding.kind == "endless"
    body = 'if (t < 64) asm volatile("bar.sync 1, 96;"); y[t] = 1;'
    finding = finding_of(run, body, threads=96)
    assert finding.kind == "deadlock"


def test_a_collective_that_waits_for_absent_lanes_is_a_deadlock(run: RUN) -> None:
    finding = finding_of(run, "if (t < 16) y[t] = __shfl_sync(~0u, t, 3);\nelse __syncthreads();")
    assert finding.kind == "deadlock"
    assert "shfl.sync" in finding.message


def test_a_lane_outside_its_own_mask_is_found(run: RUN) -> None:
    finding = finding_of(run, "y[t] = __shfl_sync(0x0000ffffu, t, 3);")
    assert finding.kind == "deadlock"
    assert finding.thread == (16, 0, 0)


def test_an_endless_loop_ends_at_the_step_limit(run: RUN) -> None:
    finding = finding_of(run, "while (((volatile float*)x)[0] > 0) y[t] = t;", max_warp_steps=10_000)
    assert finding.kind == "step_limit"
    assert finding.line == 2


WAITS = {
    "a load": "while (((volatile float*)y)[1] == 0) {}",
    "a load, now and then": "while (((volatile float*)y)[1] == 0) __nanosleep(20);",
    "one thread for all": "if (t == 0) while (((volatile float*)y)[1] == 0) __threadfence(); __syncthreads();",
    "a vote": "while (!__any_sync(~0u, ((volatile float*)y)[1] != 0)) {}",
    "a barrier each time": "while (((volatile float*)y)[1] == 0) __syncthreads();",
    "circles of many steps": "for (int k = 0; ((volatile float*)y)[1] == 0; k = (k + 1) % 5000) {}",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_waiting_for_a_later_block_is_endless(run: RUN, wait: str) -> None:
    finding = finding_of(run, f"if (b == 0) {{\n{wait} }}\nelse y[1] = 1;", 2, 64)
    assert (finding.kind, finding.block, finding.thread) == ("endless", (0, 0, 0), (0, 0, 0))


@pytest.mark.parametrize(
    "body",
    [
        "float sum = 0; for (int k = 0; k < 100000; k++) sum += ((volatile float*)x)[k % 32]; y[t] = sum;",
        "__shared__ volatile int turn; if (t == 0) turn = 0; __syncthreads();\n"
        "if (t == 0) { for (volatile int k = 0; k < 40000; k++) {} turn = 1; }\n"
        "if (t == 32) while (turn == 0) {}\ny[t] = 1;",
    ],
    ids=["slow code", "a wait for another warp"],
)
def test_what_ends_after_long_is_no_finding(run: RUN, body: str) -> None:
    assert report_of(run, body, 1, 64).finding is None


def test_a_wait_for_an_earlier_block_is_no_finding(run: RUN) -> None:
    body = "volatile float* turn = y; if (b > 0 && t == 0) while (turn[b - 1] == 0) {}\nif (t == 0) turn[b] = 1;"
    assert report_of(run, body, 4, 64).finding is None


def test_a_loop_that_never_is_as_it_was_ends_at_the_step_limit(run: RUN) -> None:
    body = "unsigned k = 0; while (((volatile float*)x)[0] > 0) k++;\ny[t] = k;"
    assert finding_of(run, body, max_warp_steps=100_000).kind == "step_limit"


def test_a_trap_and_a_failed_assertion_are_found(run: RUN) -> None:
    assert finding_of(run, "if (t == 5) __trap();").thread == (5, 0, 0)
    source = 'extern "C" __global__ void k(int* x) { assert(x[threadIdx.x] < 7); }'
    finding = run(source, 1, 32, Buffer("x", np.arange(32, dtype=np.int32), False)).finding
    assert finding is not None
    assert (finding.kind, finding.thread) == ("trap", (7, 0, 0))


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        (2**31, 32, 0, "grid.x is 2147483648"),
        ((1, 65536), 32, 0, "grid.y is 65536"),
        (0, 32, 0, "grid.x is 0"),
        (1, 2048, 0, "block.x is 2048"),
        (1, (32, 33), 0, "1056 threads"),
        (1, (1, 1, 65), 0, "block.z is 65"),
        (1, 32, 300_000, "bytes of shared memory"),
        (1, 32, -1, "shared memory"),
    ],
)
def test_impossible_launches_are_invalid(
    load: Callable[[str], PtxModule], grid: int | tuple[int, ...], block: int | tuple[int, ...], shared: int, words: str
) -> None:
    module = load('extern "C" __global__ void k(int* x) { x[0] = 1; }')
    x = Buffer("x", np.zeros(1, np.int32), True)
    report = launch(module, "k", grid, block, [x], dynamic_shared_bytes=shared)
    assert report.finding is not None
    assert report.finding.kind == "invalid_launch"
    assert words in report.finding.message


def test_launch_bounds_limit_the_block(load: Callable[[str], PtxModule]) -> None:
    module = load('extern "C" __global__ void __launch_bounds__(128) k(int* x) { x[0] = 1; }')
    assert module.kernels["k"].max_threads == 128
    report = launch(module, "k", 1, 256, [Buffer("x", np.zeros(1, np.int32), True)])
    assert report.finding is not None
    assert report.finding.kind == "invalid_launch"


def test_a_huge_grid_of_tiny_blocks_ends_at_the_step_limit(run: RUN) -> None:
    source = 'extern "C" __global__ void k(int n) {}'
    finding = run(source, 2**31 - 1, 32, 1, max_warp_steps=100_000).finding
    assert finding is not None
    assert finding.kind == "step_limit"


def test_tensor_core_instructions_are_refused_by_name_and_line(load: Callable[[str], PtxModule]) -> None:
    source = """extern "C" __global__ void k(double* d) {
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(d[0]), "+d"(d[1]) : "d"(d[2]), "d"(d[3]));
    }"""
    with pytest.raises(UnsupportedPtx, match=r"'mma\.sync.*line 2"):
        load(source)


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r1, [%nothing];",
        "bra NOWHERE;",
        "add.s32 %r1, %r2;",
        "add.u64 %r1, %r2, %r2;",
        "mov.u32 5, %r1;",
        "frobnicate.b32 %r1, %r2;",
        "st.global.v4.b32 [%r1], {%r1, %r2};",
        "call (), missing, ();",
        "tex.1d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [%r1, {%r1}];",
    ],
)
def test_broken_ptx_is_refused(body: str) -> None:
    text = (
        f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<4>;\n{body}\nret;\n}}\n"
    )
    with pytest.raises(UnsupportedPtx):
        load_module(text)


@pytest.mark.parametrize("text", ["", "garbage", ".visible .entry k(", ".visible .entry k() {", "\0" * 100, "}{}{;;"])
def test_text_that_is_no_ptx_does_no_harm(text: str) -> None:
    with contextlib.suppress(UnsupportedPtx):
        assert load_module(text).kernels == {}


def test_parameters_cannot_be_read_out_of_bounds() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_0, .param .u32 k_1)
{ .reg .b64 %rd<4>; .reg .b32 %r<4>;
 ld.param.u32 %r1, [k_1]; mov.b64 %rd1, k_0; cvt.u64.u32 %rd2, %r1; add.u64 %rd1, %rd1, %rd2;
 ld.param.u32 %r2, [%rd1]; ret; }"""
    module = load_module(text)
    y = Buffer("y", np.zeros(1, np.int32), True)
    assert launch(module, "k", 1, 1, [y, 8]).finding is None
    finding = launch(module, "k", 1, 1, [y, 4096]).finding
    assert finding is not None
    assert finding.kind == "out_of_bounds"
    assert "parameters" in finding.message


def test_variables_and_registers_without_end_are_refused() -> None:
    with pytest.raises(UnsupportedPtx, match="variables"):
        load_module(".global .align 4 .b8 table[1073741824];\n.visible .entry k()\n{ st.global.u32 [table], 1; ret; }")
    registers = ".visible .entry k()\n{ .reg .b64 %rd<99999999>; ret; }"
    with pytest.raises(UnsupportedPtx, match="registers"):
        load_module(registers)


def test_a_thread_with_too_much_local_memory_cannot_be_launched(load: Callable[[str], PtxModule]) -> None:
    source = """extern "C" __global__ void k(int* y, int n) {
        volatile int local[100000]; local[n] = n; y[threadIdx.x] = local[n + 1];
    }"""
    report = launch(load(source), "k", 1, 1024, [Buffer("y", np.zeros(1024, np.int32), True), 5])
    assert report.finding is not None
    assert report.finding.kind == "invalid_launch"
    assert "local memory" in report.finding.message


WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'


def run_dependent(run: RUN, body: str) -> Finding | None:
    """As finding_of, where kernels before may still be writing x and y; `a` was written long ago."""
    head = 'extern "C" __global__ void k(const float* a, const float* x, float* y) { int t = threadIdx.x;'
    a, x = (Buffer(name, np.ones(100, np.float32), False, dependent=name == "x") for name in "ax")
    y = Buffer("y", np.zeros(100, np.float32), True, dependent=True)
    return run(f"{head}\n{body}\n}}", 1, 32, a, x, y).finding


def test_what_earlier_kernels_do_not_write_may_be_read_before_the_wait(run: RUN) -> None:
    assert run_dependent(run, f"float early = a[t]; {WAIT} y[t] = early * x[t];") is None


def test_a_vector_read_before_the_wait_is_an_early_access(run: RUN) -> None:
    finding = run_dependent(run, f"float early = x[t]; {WAIT} y[t] = early;")
    assert finding is not None
    assert finding.kind == "early_access"
    assert finding.message.startswith("read before griddepcontrol.wait, while earlier kernels may still run: x[0]")


def test_each_lane_has_to_wait_itself(run: RUN) -> None:
    finding = run_dependent(run, f"if (t != 7) {{ {WAIT} }} y[t] = a[t];")
    assert finding is not None
    assert (finding.kind, finding.thread) == ("early_access", (7, 0, 0))


def test_a_load_that_the_compiler_may_move_past_the_wait_is_an_early_access(run: RUN) -> None:
    finding = run_dependent(run, f"{WAIT} y[t] = __ldg(x + t);")
    assert finding is not None
    assert finding.message.startswith("constant read, which may move up past griddepcontrol.wait (__restrict__?): x[0]")


ADDED = """extern "C" __global__ void k(float* y) {
  if (blockIdx.x == 0) atomicExch(y, 0.0f);
  else atomicAdd(y, 1.0f);
}"""


@pytest.mark.parametrize(("stride", "result"), [(1, 3.0), (-1, 0.0)])
def test_blocks_run_from_the_first_or_from_the_last(
    run: Callable[..., LaunchReport], stride: int, result: float
) -> None:
    y = np.zeros(1, np.float32)
    assert run(ADDED, 4, 1, Buffer("y", y, True), block_stride=stride).finding is None
    assert y.tolist() == [result]


HALF_WRITTEN = """extern "C" __global__ void k(float* y, int first) {
  if (first < 0) y[threadIdx.x] = y[threadIdx.x + 1];
  else y[first + threadIdx.x] = 1;
}"""


def test_a_launch_may_read_what_those_before_it_have_written_and_no_more(load: Callable[[str], PtxModule]) -> None:
    module, y = load(HALF_WRITTEN), np.zeros(64, np.float32)
    buffer = Buffer("y", y, True, nothing_written(y))
    assert launch(module, "k", 1, 32, [buffer, 0]).finding is None
    finding = launch(module, "k", 1, 32, [buffer, -1]).finding
    assert finding is not None
    assert finding.kind == "uninitialised_read"
    assert "y[32]" in finding.message
    assert launch(module, "k", 1, 32, [buffer, 32]).finding is None
    assert launch(module, "k", 1, 32, [buffer, -1]).finding is None


SHUFFLED = """extern "C" __global__ void k(float* y, int* order) {
  __shared__ int turn, seen[4];
  if (threadIdx.x == 0) turn = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    for (int spin = 0; spin < 300; ++spin) asm volatile("nanosleep.u32 1;");
    seen[atomicAdd(&turn, 1)] = threadIdx.x / 32;
  }
  __syncthreads();
  if (threadIdx.x < 4) {
    int place = 0;
    if (threadIdx.x == 0) place = atomicAdd((int*)y, 1);
    place = __shfl_sync(15, place, 0);
    order[place * 5 + 1 + threadIdx.x] = seen[threadIdx.x];
    if (threadIdx.x == 0) order[place * 5] = blockIdx.x;
  }
}"""


def test_shuffled_blocks_and_warps_each_run_once_in_an_order_that_the_generator_draws(
    run: Callable[..., LaunchReport],
) -> None:
    orders = []
    for seed in (1, 2):
        counter, order = np.zeros(1, np.int32), np.zeros(12 * 5, np.int32)
        arguments = (Buffer("y", counter, True), Buffer("order", order, True))
        assert run(SHUFFLED, 12, 128, *arguments, shuffle=np.random.default_rng(seed)).finding is None
        blocks, warps = order.reshape(12, 5)[:, 0], order.reshape(12, 5)[:, 1:]
        assert sorted(blocks) == list(range(12))
        assert all(sorted(of_block) == [0, 1, 2, 3] for of_block in warps)
        assert len({tuple(of_block) for of_block in warps}) > 1
        orders.append(blocks.tolist())
    assert orders[0] != orders[1]
    assert list(range(12)) not in orders


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ int left[32]; y[t] = atomicAdd(&left[t], 0) == 7;",
        "__shared__ int left[32]; y[t] = atomicExch(&left[t], 5) == 7;",
        "__shared__ int left[32]; y[t] = atomicCAS(&left[t], 5, 6) == 7;",
        "__shared__ int left[32]; atomicMax(&left[t], 5); y[t] = 1;",
        "__shared__ unsigned long long left[32]; ((int*)left)[2 * t] = 0; y[t] = atomicAdd(&left[t], 0ull) == 7;",
    ],
)
def test_an_atomic_on_shared_memory_that_nothing_wrote_is_found(run: RUN, body: str) -> None:
    finding = finding_of(run, body)
    assert finding.kind == "uninitialised_shared"
    assert finding.message.startswith("atomic operation on shared memory that no thread of the block has written")


@pytest.mark.parametrize(
    "body",
    [
        "left[t] = 0; y[t] = atomicAdd(&left[t], 1);",
        "atomicExch(&left[t], 5); y[t] = atomicAdd(&left[t], 1);",
        "atomicExch(&left[t], 5); y[t] = left[t];",
    ],
)
def test_an_exchange_whose_old_value_nobody_uses_writes(run: RUN, body: str) -> None:
    head = 'extern "C" __global__ void k(float* y) { int t = threadIdx.x; __shared__ int left[32];'
    source = f"{head}\n{body}\n}}"
    assert run(source, 1, 32, Buffer("y", np.zeros(32, np.float32), True)).finding is None
