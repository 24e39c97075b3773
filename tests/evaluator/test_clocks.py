"""A clock may decide how long a wait sleeps, and nothing else."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.facts import forbidden_instruction
from services.evaluator.ptx import read_module

WAIT = """
mov.u64 %rd9, %globaltimer;
{
.reg .pred p;
mbarrier.try_wait.shared.b64 p, [%r10], %rd8;
selp.b32 %r9, 1, 0, p;
}
setp.ne.s32 %p2, %r9, 0;
@%p2 bra $L_done;
mov.u32 %r19, 0;
$L_again:
setp.lt.s32 %p3, %r19, 16;
@%p3 bra $L_count;
bra.uni $L_look;
$L_count:
add.s32 %r19, %r19, 1;
bra.uni $L_try;
$L_look:
mov.u64 %rd17, %globaltimer;
sub.s64 %rd4, %rd17, %rd9;
setp.lt.s64 %p4, %rd4, 4000000;
@%p4 bra $L_short;
bra.uni $L_long;
$L_short:
setp.lt.s64 %p5, %rd4, 40000;
@%p5 bra $L_try;
shr.u64 %rd21, %rd4, 2;
cvt.u32.u64 %r13, %rd21;
nanosleep.u32 %r13;
bra.uni $L_try;
$L_long:
mov.u32 %r12, 1000000;
nanosleep.u32 %r12;
$L_try:
{
.reg .pred p;
mbarrier.try_wait.shared.b64 p, [%r10], %rd8;
selp.b32 %r14, 1, 0, p;
}
setp.eq.s32 %p6, %r14, 0;
@%p6 bra $L_again;
$L_done:
"""
"""As `cuda::barrier` of CCCL 13.0 waits."""


def judged(body: str) -> str:
    registers = ".reg .pred %p<9>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<40>;\n.reg .f32 %f<9>;\n"
    head = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n"
    return forbidden_instruction(read_module(f"{head}{registers}{body}\nret;\n}}"))


def test_a_barrier_that_sleeps_the_longer_the_longer_it_waits_is_accepted() -> None:
    assert judged(WAIT + "st.global.f32 [%rd1], %f1;") == ""


def test_the_time_limit_of_a_wait_may_come_from_the_clock() -> None:
    limited = "mov.u64 %rd9, %globaltimer;\ncvt.u32.u64 %r1, %rd9;\n"
    wait = "mbarrier.try_wait.shared.b64 %p1, [%r10], %rd8, %r1;"
    assert judged(f"{limited}{wait}") == ""
    assert "%globaltimer" in judged(f"{limited}mbarrier.try_wait.shared.b64 %p1, [%r1], %rd8, %r2;")


@pytest.mark.parametrize(
    "leaking",
    [
        WAIT + "st.global.u64 [%rd1], %rd4;",
        WAIT + "st.shared.u32 [%r10], %r13;",
        WAIT + "selp.b32 %r1, 1, 2, %p4;\nst.global.u32 [%rd1], %r1;",
        WAIT + "@%p4 bra $L_end;\nst.global.f32 [%rd1], %f1;\n$L_end:",
        WAIT + "@%p5 st.global.f32 [%rd1], %f1;",
        WAIT + "@%p5 exit;",
        WAIT + "add.s64 %rd1, %rd1, %rd4;\nld.global.f32 %f1, [%rd1];",
        WAIT.replace("mov.u32 %r12, 1000000;", "mov.u32 %r12, 1000000;\nmov.u32 %r30, 1;")
        + "st.global.u32 [%rd1], %r30;",
        WAIT.replace("nanosleep.u32 %r12;", "ld.volatile.shared.u32 %r31, [%r10];"),
        WAIT.replace("nanosleep.u32 %r12;", "bar.sync 0;"),
        WAIT + "shfl.sync.idx.b32 %r1, %r13, 0, 31, -1;\nst.global.u32 [%rd1], %r1;",
        WAIT + "@%p4 mov.f32 %f1, 0f00000000;\nst.global.f32 [%rd1], %f1;",
    ],
    ids=[
        "stored",
        "in shared memory",
        "chosen by",
        "a branch around a store",
        "a guard of a store",
        "a way out",
        "an address",
        "what its branch counts",
        "a load under its branch",
        "a barrier under its branch",
        "given to other threads",
        "a guard of a move",
    ],
)
def test_a_clock_that_reaches_anything_else_is_refused(leaking: str) -> None:
    assert "clocks could tell" in judged(leaking)


@pytest.mark.parametrize("clock", ["%clock64", "%globaltimer_lo", "%clock"])
def test_no_other_clock_is_read(clock: str) -> None:
    assert clock in judged(f"mov.u64 %rd9, {clock};")


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def test_a_clock_by_way_of_a_header_is_seen_where_it_is_laundered(compiler: Compiler) -> None:
    source = """#include <cuda/ptx>
extern "C" __global__ void k(int n, float* y) {
  unsigned long long begin = cuda::ptx::get_sreg_globaltimer();
  for (int i = 0; i < n; i++) __nanosleep(20);
  unsigned long long took = cuda::ptx::get_sreg_globaltimer() - begin;
  __shared__ int slow[32];
  slow[threadIdx.x % 32] = 0;
  for (int bit = 0; bit < 20; bit++) if (took >> bit & 1) slow[bit] = 1;
  y[threadIdx.x] = slow[12] ? 0.0f : 1.0f;
}"""
    binary = compiler.compile(source, "sm_90")
    assert isinstance(binary, Compiled), binary
    assert "%globaltimer" in binary.facts.forbidden_instruction
