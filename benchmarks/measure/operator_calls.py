"""What a call of the operator costs the host, before the GPU does anything.

    python -m benchmarks.measure.operator_calls [--calls 20000] [--turns 9]

On a GPU: host time of a product of a small matrix (one launch) from C, on the default stream and on one of its own, from
Python with `out=`, of torch's operator (a new result each time) with torch's tensors, and of CuPy's own; scaled over plain
products on the GPU; new values from the device in bytes a second. Without a GPU the
driver is tests/operator/stand_in_driver.c, whose calls return at once: what is left is the library's own time, Python's
way to it by ctypes, and `python_out`, a whole `matvec(x, out=y)` of torch's tensors with its checks. The least of `turns`
means counts: on a busy machine many turns of few calls.
"""

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.origin import ROOT, folder_of, source_commit, write_result
from sparsesmith.artifacts.launcher import current_architecture, import_cupy
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operator import Operator
from sparsesmith.operator.backend import BoundProduct
from sparsesmith.operator.directions import direction_of, plain_program
from sparsesmith.operator.file import packed_sections
from sparsesmith.operator.host import HostBackend
from sparsesmith.operator.image import as_bytes, support_cubin
from sparsesmith.operator.native.build import SOURCES, build, c_compiler
from sparsesmith.operator.native.library import LIBRARY_VARIABLE, NativeOperator
from sparsesmith.tuning.grid import Grid, grid_of_problem
from sparsesmith_proto.kernel import Workload

LOOP = """
#include <time.h>
#include "sparsesmith_op.h"
double ns_a_call(const sparsesmith_op* op, double beta, void* x, void* y, void* stream, int calls) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < calls; i++) if (sparsesmith_op_apply(op, 1.0, x, beta, y, stream)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls;
}
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
double ns_a_launch(Launch launch, void* function, void* stream, int calls) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < calls; i++) if (launch(function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls;
}
"""
STAND_IN = "SPARSESMITH_BENCHMARK_STAND_IN"


def main() -> None:
    options = _options()
    architecture = current_architecture()
    if architecture is None and STAND_IN not in os.environ:
        raise SystemExit(_on_the_stand_in())
    matrix = scipy.sparse.random(2000, 2000, 0.005, format="csr", random_state=1)
    calls = options.calls if architecture is None else min(options.calls, _IN_FLIGHT)
    result = {
        "kind": "operator_calls",
        "device": _device(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "nnz": int(matrix.nnz),
        "calls": calls,
        "turns": options.turns,
        "us_a_call": _host_times(matrix, architecture or "sm_90", calls, options.turns),
    }
    print(json.dumps(result["us_a_call"], indent=2), flush=True)
    folder = ROOT / "benchmarks" / "results" / (folder_of(_device()) if architecture else "cpu")
    path = options.out or folder / "operator-calls.json"
    write_result(path, result)
    if architecture is not None:
        write_result(path, result | _on_the_gpu(options.turns))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _on_the_stand_in() -> int:
    """Runs this again where the stand-in is found as the driver."""
    with TemporaryDirectory() as folder:
        flags = ["-std=c11", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        source = ROOT / "tests" / "operator" / "stand_in_driver.c"
        subprocess.run([*c_compiler(), *flags, "-o", f"{folder}/libcuda.so.1", source], check=True)
        library = build(Path(folder))
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, STAND_IN: "1", LIBRARY_VARIABLE: str(library)}
        again = [sys.executable, "-m", "benchmarks.measure.operator_calls", *sys.argv[1:]]
        return subprocess.run(again, env=environment, check=False).returncode


def _device() -> str:
    try:
        properties = import_cupy().cuda.runtime.getDeviceProperties(0)
    except Unavailable:
        return "a driver that does nothing"
    return str(properties["name"].decode())


def _image(matrix: Any, architecture: str) -> bytes:
    """With machine code of the GPU; any text where the driver does nothing."""
    workload = Workload(pattern=pattern_from_scipy(matrix).digest, operation="spmv", element_type="float32")
    compiled: dict[str, Any] = {"compiled": lambda source, name: b"code"} if STAND_IN in os.environ else {}
    support = support_cubin("float32", architecture, **compiled)
    sections = direction_of(matrix, workload, plain_program(workload)).sections(architecture, 132, **compiled)
    return packed_sections({**sections, "support": support, "values": as_bytes(matrix.data.astype(np.float32))})


def _host_times(matrix: Any, architecture: str, calls: int, turns: int) -> dict[str, float]:
    operator = NativeOperator(_image(matrix, architecture))
    x, y, wait = _vectors()
    with TemporaryDirectory() as folder:
        (Path(folder) / "loop.c").write_text(LOOP)
        path = f"{folder}/loop.so"
        named = os.environ.get(LIBRARY_VARIABLE) or str(build(Path(folder)))
        command = [*c_compiler(), "-O2", "-shared", "-fPIC", f"-I{SOURCES}", "-o", path, f"{folder}/loop.c", named]
        subprocess.run([*command, f"-Wl,-rpath,{Path(named).parent}"], check=True)
        loop = ctypes.CDLL(path)
        loop.ns_a_call.restype = ctypes.c_double
        loop.ns_a_call.argtypes = [ctypes.c_void_p, ctypes.c_double, *[ctypes.c_void_p] * 3, ctypes.c_int]

        def in_c(beta: float, stream: int | None = None) -> float:
            ns = float(loop.ns_a_call(operator._handle, beta, x, y, stream, calls))
            wait()
            if ns < 0:
                raise Unavailable("a product from C was refused")
            return ns / 1e3

        plain = min(in_c(0) for _ in range(turns))
        scaled = min(in_c(1) for _ in range(turns))
        apart = _own_stream()
        on_its_own: dict[str, float] = {}
        if apart is not None:
            stream = int(apart.ptr)
            on_its_own["c_own_stream"] = min(in_c(0, stream) for _ in range(turns))
            on_its_own["driver_empty_launch"] = _empty_launch_us(loop, stream, calls, turns, wait)
    by_ctypes = min(_us_a_call(lambda: operator.apply(x, y, 0), calls, wait) for _ in range(turns))
    found = {"c": plain, "c_scaled": scaled, "ctypes": by_ctypes, **on_its_own}
    if STAND_IN in os.environ:
        found["python_out"] = _python_us(matrix, operator, calls, turns)
    operator.close()
    return found


def _empty_launch_us(loop: ctypes.CDLL, stream: int, calls: int, turns: int, wait: Callable[[], None]) -> float:
    """The driver's own price of a launch: of a kernel without arguments that does nothing."""
    kernel = import_cupy().RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    loop.ns_a_launch.restype = ctypes.c_double
    loop.ns_a_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def once() -> float:
        ns = float(loop.ns_a_launch(launch, int(kernel.kernel.ptr), stream, calls))
        wait()
        if ns < 0:
            raise Unavailable("an empty launch was refused")
        return ns / 1e3

    return min(once() for _ in range(turns))


def _python_us(matrix: Any, native: NativeOperator, calls: int, turns: int) -> float:
    import torch

    operator = _operator(matrix)
    operator._bound._backend = _OnTheStandIn(native)
    x, y = torch.zeros(2000), torch.zeros(2000)
    return min(_us_a_call(lambda: operator.matvec(x, out=y), calls, lambda: None) for _ in range(turns))


def _torch_us(operator: Operator, device: str, turns: int, wait: Callable[[], None]) -> dict[str, float]:
    """Of torch's tensors: with `out=`, by torch's operator, and by it with a gradient to come. Nothing without torch."""
    try:
        import torch
    except ImportError:
        return {}
    from sparsesmith.torch import product

    x, y = (torch.zeros(2000, device=device) for _ in range(2))
    traced = torch.zeros(2000, device=device, requires_grad=True)
    calls: dict[str, Callable[[], Any]] = {
        "torch_out": lambda: operator.matvec(x, out=y),
        "torch_op": lambda: product(operator, x),
        "torch_op_traced": lambda: product(operator, traced),
    }
    return {name: min(_us_a_call(call, _IN_FLIGHT, wait) for _ in range(turns)) for name, call in calls.items()}


class _OnTheStandIn(HostBackend):
    """Products of tensors of the host, which is the stand-in's device, through the C library; the current device and its
    stream are asked for in functions that know them."""

    def __init__(self, native: NativeOperator) -> None:
        self._native = native

    def bound(self, x: Any, out: Any, *, transposed: bool) -> BoundProduct:
        return self._native.of_arrays("torch", lambda: 0, transposed=transposed)


def _vectors() -> tuple[int, int, Callable[[], None]]:
    """Addresses of two vectors, and what waits for the device."""
    if STAND_IN in os.environ:
        driver = ctypes.CDLL("libcuda.so.1")
        addresses = [ctypes.c_uint64(), ctypes.c_uint64()]
        for address in addresses:
            driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8000))
        return addresses[0].value, addresses[1].value, lambda: None
    cupy = import_cupy()
    held = cupy.zeros((2, 2000), "float32")
    _vectors.held = held  # type: ignore[attr-defined]
    return int(held[0].data.ptr), int(held[1].data.ptr), cupy.cuda.runtime.deviceSynchronize


def _own_stream() -> Any:
    """One that waits for no other; the default stream, on which the other calls go, looks at all that may wait for it."""
    return None if STAND_IN in os.environ else import_cupy().cuda.Stream(non_blocking=True)


def _us_a_call(call: Callable[[], Any], calls: int, wait: Callable[[], None]) -> float:
    wait()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    seconds = time.perf_counter() - started
    wait()
    return seconds / calls * 1e6


def _on_the_gpu(turns: int) -> dict[str, Any]:
    """Python's calls, and what scaling and new values cost the GPU."""
    cupy = import_cupy()
    small = scipy.sparse.random(2000, 2000, 0.005, format="csr", random_state=1)
    # By a Generator: a RandomState would permute all 1e12 places.
    random = np.random.default_rng(1)
    large = scipy.sparse.random(1_000_000, 1_000_000, 1e-5, format="csr", random_state=random)
    wait = cupy.cuda.runtime.deviceSynchronize
    operator, theirs = _operator(small), _of_cupyx(small)
    x, y = cupy.zeros(2000, "float32"), cupy.zeros(2000, "float32")
    python = {
        "python_out": min(_us_a_call(lambda: operator.matvec(x, out=y), _IN_FLIGHT, wait) for _ in range(turns)),
        **_torch_us(operator, "cuda", turns, wait),
        "cupy": min(_us_a_call(lambda: theirs @ x, _IN_FLIGHT, wait) for _ in range(turns)),
    }
    operator = _operator(large)
    x, y = cupy.ones(1_000_000, "float32"), cupy.ones(1_000_000, "float32")
    values = cupy.ones(large.nnz, "float32")
    plain = _gpu_us(lambda: operator.matvec(x, out=y), turns)
    scaled = _gpu_us(lambda: operator.matvec(x, out=y, alpha=2, beta=1), turns)
    found = {
        "python_us_a_call": python,
        "scaled_over_plain": scaled / plain,
        "large_nnz": int(large.nnz),
    }
    for name, program in {"copied": plain_program(_workload(large)), "gathered": _in_bins(large)}.items():
        held = _operator(large, program)
        held.matvec(x, out=y)
        us = _gpu_us(partial(held.update_values, values), turns, behind=partial(held.matvec, x, out=y))
        moved = 2 * values.nbytes + (4 * large.nnz if name == "gathered" else 0)
        found[f"update_values_{name}"] = {"us": us, "gbs": moved / us / 1e3}
        held.close()
    return {**found, "copy_gbs": _copy_gbs(turns)}


def _copy_gbs(turns: int) -> float:
    """Read and written, of memory that no cache holds."""
    cupy = import_cupy()
    given, taken = cupy.zeros(_COPIED_BYTES, "uint8"), cupy.empty(_COPIED_BYTES, "uint8")
    stream = cupy.cuda.get_current_stream()
    us = _gpu_us(lambda: taken.data.copy_from_device_async(given.data, _COPIED_BYTES, stream), turns)
    return 2 * _COPIED_BYTES / us / 1e3


_COPIED_BYTES = 2**30
_IN_FLIGHT = 500
"""Calls before the device is waited for: its queue must not be full."""
_AHEAD, _MEASURED = 400, 60
"""Products put before what is timed, and calls timed."""


def _workload(matrix: Any) -> Workload:
    return Workload(pattern=pattern_from_scipy(matrix).digest, operation="spmv", element_type="float32")


def _in_bins(matrix: Any) -> str:
    """A program whose format stores values in an order of its own: rows by their lengths, a slot for each lane."""
    grid = grid_of_problem(Problem(_workload(matrix), pattern_from_scipy(matrix)))
    assert isinstance(grid, Grid)
    number = next(place for place, each in enumerate(grid.prospects) if each.family.name == "row_bins")
    return grid.instance(number).program


def _operator(matrix: Any, program: str | None = None) -> Operator:
    from tests.artifacts.answers import make_report

    workload = _workload(matrix)
    return Operator(make_report(matrix, program or plain_program(workload)), matrix)


def _of_cupyx(matrix: Any) -> Any:
    from cupyx.scipy.sparse import csr_matrix

    return csr_matrix(matrix.astype(np.float32))


def _gpu_us(call: Callable[[], Any], turns: int, behind: Callable[[], Any] | None = None) -> float:
    """The least of some means, by events. `behind`: work put before, so that the GPU waits for no call of the host's."""
    cupy = import_cupy()
    call()
    times: list[float] = []
    for _ in range(turns):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        if behind is not None:
            for _ in range(_AHEAD):
                behind()
        start.record()
        for _ in range(_MEASURED):
            call()
        end.record()
        end.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(start, end)) * 1e3 / _MEASURED)
    return min(times)


if __name__ == "__main__":
    main()
