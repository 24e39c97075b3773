"""No program, however broken, reads or writes outside the arrays of its launch."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import Buffer, PtxModule, UnsupportedPtx, load_module
from services.evaluator.interpreter.machine.launching import LaunchShape, _Launch
from services.evaluator.interpreter.machine.machine import run_blocks
from services.evaluator.interpreter.machine.state import LAUNCH_MAX_STEPS, Memory

GUARD_BYTES = 4096
VIEWS = {
    "longs": "words",
    "bytes1": "bytes8",
    "bytes2": "bytes8",
    "bytes4": "bytes8",
    "floats": "bytes8",
    "doubles": "bytes8",
}

PROGRAM = r"""#include <cuda_fp16.h>
__device__ int counters[4];
__device__ __noinline__ float part(const float* x, int i, int n) {
    float l[4]; for (int j = 0; j < 4; j++) l[j * n & 3] = x[i]; return l[i & 3]; }
extern "C" __global__ void k(const int* rows, const float* x, float* y, double* d, __half2* h, int n) {
    __shared__ float tile[64]; extern __shared__ int more[]; __shared__ int box;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t == 0) box = 0; tile[t] = x[i % n]; more[t] = rows[i % n]; __syncthreads();
    float sum = 0;
    for (int j = rows[t]; j < rows[t + 1]; j++) {
        float4 v = ((const float4*)x)[j & 7]; sum += v.x + v.w * tile[j & 63]; }
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    unsigned ballot = __ballot_sync(~0u, t & 1); int all;
    ballot += __match_any_sync(~0u, t / 4) + __match_all_sync(~0u, t, &all);
    if (t & 1) atomicAdd(&box, more[t ^ 1]); else atomicMax(counters + (t & 3), (int)ballot);
    float* p = t % 3 ? tile + t : y + t; *p = sum; __syncthreads();
    switch (t & 7) { case 0: y[64 + i] = box; break; case 1: atomicAdd(y, sum); break; case 2: atomicAdd(d, 1.0); break;
        case 3: d[1 + t] = sqrt(fabs((double)sum)); break; case 5: h[t] = __hadd2(h[t], h[t + 1]); break;
        case 6: ((char*)y)[t] = t; break; default: y[i] = part(x, t, n); }
    asm volatile("{ .reg .b32 a; cvt.u32.u64 a, %0; cp.async.ca.shared.global [a], [%1], 4; }"
        :: "l"(__cvta_generic_to_shared(tile + t)), "l"(x + t));
    __syncthreads_or(t == 3); asm volatile("bar.sync 3, 64;");
}"""


@pytest.fixture(scope="module")
def ptx(compiler: Compiler) -> str:
    result = compiler.compile(PROGRAM, "sm_90")
    assert isinstance(result, Compiled), result
    return result.ptx


def guarded(array: NDArray[np.generic], guards: list[NDArray[np.uint8]]) -> NDArray[np.generic]:
    """A copy of an array between guard zones."""
    size = (array.nbytes + 7) // 8 * 8
    memory = np.full(GUARD_BYTES + size + GUARD_BYTES, 0xA5, np.uint8)
    guards.extend((memory[:GUARD_BYTES], memory[GUARD_BYTES + size :]))
    copy = memory[GUARD_BYTES : GUARD_BYTES + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def run_guarded(module: PtxModule, max_warp_steps: int = 20_000) -> str:
    """Launch with every array of the machine between guard zones; returns the kind of the finding."""
    arguments: list[Buffer | int] = [
        Buffer("rows", np.arange(128, dtype=np.int32) // 2, False),
        Buffer("x", np.ones(256, np.float32), False),
        Buffer("y", np.zeros(512, np.float32), True),
        Buffer("d", np.zeros(128), True),
        Buffer("h", np.zeros(256, np.float16), True),
        100,
    ]
    shape = LaunchShape((2, 1, 1), (64, 1, 1), 512)
    launch = _Launch(module, module.decoded("k"), shape, arguments, check_races=True, block_stride=1)
    launch.memory.launch[LAUNCH_MAX_STEPS] = max_warp_steps
    guards: list[NDArray[np.uint8]] = []
    arrays: dict[str, Any] = {
        name: guarded(array, guards) for name, array in launch.memory._asdict().items() if name not in VIEWS
    }
    for name, base in VIEWS.items():
        arrays[name] = arrays[base].view(getattr(launch.memory, name).dtype)
    launch.memory = Memory(**arrays)
    run_blocks(launch.memory, 0, 2)
    assert all((guard == 0xA5).all() for guard in guards)
    finding = launch.report().finding
    return finding.kind if finding else "none"


def mutate(text: str, generator: random.Random) -> str:
    """Change a few operands, instructions, types or numbers of the kernel bodies."""
    lines = text.splitlines()
    bodies = [n for n, line in enumerate(lines) if ";" in line and not line.lstrip().startswith(".")]
    for _ in range(generator.randint(1, 4)):
        n, other = generator.choice(bodies), generator.choice(bodies)
        lines[n] = mutated(lines[n], lines[other], generator)
    return "\n".join(lines)


def mutated(line: str, other: str, generator: random.Random) -> str:
    """The line with one change, of another line's text for one of them."""
    changes: list[Callable[[], str]] = [
        lambda: other,
        lambda: line + "\n" + line,
        lambda: "",
        lambda: re.sub(r"(%[a-z]+)(\d+)", lambda m: m[1] + str(generator.randint(0, 40)), line, count=1),
        lambda: re.sub(r"\b\d+\b(?=[\];,])", lambda m: str(generator.choice([0, 1, 3, 4097, -1, 2**31])), line),
        lambda: re.sub(
            r"\.(global|shared|local|param)\b", lambda m: generator.choice([".global", ".shared", ".local", ""]), line
        ),
        lambda: re.sub(
            r"\.([usbf])(16|32|64)\b", lambda m: "." + m[1] + generator.choice(["8", "16", "32", "64"]), line
        ),
        lambda: line.replace("+", "+" + str(generator.choice([8, 4096, 10**12]))),
    ]
    return generator.choice(changes)()


def test_the_unchanged_program_runs_to_its_end(ptx: str) -> None:
    assert run_guarded(load_module(ptx)) in ("none", "race")


def test_mutated_programs_stay_inside_their_memory(ptx: str) -> None:
    generator = random.Random(20261121)
    outcomes: dict[str, int] = {}
    for _ in range(1500):
        text = mutate(ptx, generator)
        try:
            module = load_module(text)
            outcome = run_guarded(module) if "k" in module.kernels else "refused"
        except UnsupportedPtx:
            outcome = "refused"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["refused"] > 50
    assert {"out_of_bounds", "misaligned", "uninitialised_shared", "race"} <= set(outcomes), outcomes
