"""Phase barriers, bulk copies, and reads of what nothing has written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.evaluator.interpreter import Buffer, LaunchReport, PtxModule, launch, load_module

Run = Callable[..., LaunchReport]

BULK = """
__device__ __forceinline__ unsigned at(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void begin(float* to, const float* from, unsigned bytes, unsigned long long* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(bar)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
    :: "r"(at(to)), "l"(from), "r"(bytes), "r"(at(bar)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long* bar, unsigned parity) {
  unsigned done = 0;
  while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
    : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
}
"""
HEAD = """extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float staged[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" :: "r"(at(&bar)) : "memory");
  __syncthreads();
"""


def buffers() -> tuple[Buffer, Buffer]:
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, dtype=np.float32)
    return Buffer("x", x, writable=False), Buffer("y", y, writable=True)


def test_a_bulk_copy_is_there_for_all_that_waited_for_its_phase(run: Run) -> None:
    x, y = buffers()
    body = "if (t == 0) begin(staged, x + 4, 256, &bar); wait(&bar, 0); y[t] = staged[t]; }"
    assert run(BULK + HEAD + body, 1, 64, x, y).finding is None
    np.testing.assert_array_equal(y.array[:64], np.arange(4, 68))


def test_phases_take_turns(run: Run) -> None:
    x, y = buffers()
    body = """for (int i = 0; i < 4; i++) {
      if (t == 0) begin(staged, x + 64 * i, 256, &bar);
      wait(&bar, i & 1); y[64 * i + t] = staged[t]; __syncthreads(); } }"""
    assert run(BULK + HEAD + body, 1, 64, x, y).finding is None
    np.testing.assert_array_equal(y.array, x.array)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("if (t == 0) begin(staged, x, 256, &bar); y[t] = staged[t]; }", "uninitialised_shared"),
        ("if (t == 0) { begin(staged, x, 256, &bar); wait(&bar, 0); } if (t >= 32) y[t] = staged[t]; }", "race"),
        ("if (t == 0) begin(staged, x + 224, 256, &bar); wait(&bar, 0); y[t] = staged[t]; }", "out_of_bounds"),
        ("if (t == 0) begin(staged + 4, x, 256, &bar); wait(&bar, 0); y[t] = staged[t + 4]; }", "out_of_bounds"),
        ("if (t == 0) begin(staged, x + 1, 256, &bar); wait(&bar, 0); y[t] = staged[t]; }", "misaligned"),
        ("if (t == 0) begin(staged, x, 260, &bar); wait(&bar, 0); y[t] = staged[t]; }", "misaligned"),
    ],
)
def test_a_bulk_copy_that_goes_wrong_is_found(body: str, kind: str, run: Run) -> None:
    x, y = buffers()
    finding = run(BULK + HEAD + body, 1, 64, x, y).finding
    assert finding is not None
    assert finding.kind == kind, finding


STORE = """staged[t] = t; __syncthreads();
  if (t == 0) { asm volatile("fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"
      "cp.async.bulk.commit_group;" :: "l"(y), "r"(at(staged)) : "memory"); WAIT } }"""
WAIT = 'asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");'


@pytest.mark.parametrize(("wait", "expected"), [(WAIT, 63.0), ("", 0.0)])
def test_a_bulk_store_arrives_where_its_thread_waits(wait: str, expected: float, run: Run) -> None:
    x, y = buffers()
    assert run(BULK + HEAD + STORE.replace("WAIT", wait), 1, 64, x, y).finding is None
    assert y.array[63] == expected


CONSTANT = 'float f; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(f) : "l"(y + threadIdx.x) : "memory");'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("volatile float f[8]; y[threadIdx.x] = f[n];", "uninitialised_local"),
        ("volatile float f[8]; f[n] = 1; y[threadIdx.x] = f[n + 1];", "uninitialised_local"),
        ("volatile float f[8]; for (int i = 0; i < 8; i++) f[i] = i; y[threadIdx.x] = f[n];", None),
        (f"y[threadIdx.x] = 1; {CONSTANT} y[threadIdx.x] = f;", "changing_constant"),
        (f"{CONSTANT} y[threadIdx.x] = f + 1;", "changing_constant"),
        ("float f = ((volatile float*)y)[threadIdx.x]; y[threadIdx.x] = f;", None),
    ],
)
def test_reads_of_what_need_not_be_there_are_found(body: str, kind: Any, run: Run) -> None:
    y = Buffer("y", np.zeros(64, np.float32), writable=True)
    finding = run(f'extern "C" __global__ void k(float* y, int n) {{ {body} }}', 1, 32, y, 3).finding
    assert (finding and finding.kind) == kind, finding


def test_what_the_block_before_left_on_the_stack_counts_as_unwritten(run: Run) -> None:
    body = "volatile float f[8]; if (blockIdx.x == 0) f[n] = 1; y[threadIdx.x] = f[n];"
    y = Buffer("y", np.zeros(64, np.float32), writable=True)
    finding = run(f'extern "C" __global__ void k(float* y, int n) {{ {body} }}', 2, 32, y, 3).finding
    assert finding is not None
    assert (finding.kind, finding.block) == ("uninitialised_local", (1, 0, 0))


def test_functions_may_call_each_other_many_levels_deep() -> None:
    functions = "".join(
        f".func (.param .b32 r) f{n} (.param .b32 p) {{ .reg .b32 %r<4>; ld.param.b32 %r1, [p]; add.s32 %r1, %r1, 1;"
        f" {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), f{n + 1}, (a);"
        " ld.param.b32 %r2, [b]; } st.param.b32 [r], %r2; ret; }\n"
        for n in range(500)
    )
    last = """.func (.param .b32 r) f500 (.param .b32 p)
      { .reg .b32 %r<2>; ld.param.b32 %r1, [p]; st.param.b32 [r], %r1; ret; }"""
    entry = """.visible .entry k (.param .u64 y) { .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [y];
      { .param .b32 a; .param .b32 b; st.param.b32 [a], 7; call.uni (b), f0, (a); ld.param.b32 %r1, [b]; }
      st.global.b32 [%rd1], %r1; ret; }"""
    module: PtxModule = load_module(functions + last + entry)
    y = Buffer("y", np.zeros(1, np.int32), writable=True)
    assert launch(module, "k", 1, 1, [y]).finding is None
    assert y.array[0] == 507
