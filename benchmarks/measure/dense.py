"""The dense product beside the sparse one: by cuBLAS as PyTorch calls it, in the same type, TensorFloat-32 off. Needs a GPU."""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.message import ElementType

BATCHES = 20
COLD_RUNS = 21
PAUSE_CYCLES = 4_000_000
"""Some two milliseconds of a GPU's clock."""
FLUSH_FACTOR = 4
"""So many times the L2's size is written before a cold run."""

Calls = dict[str, Callable[[], Any]]


def dense_times(pattern: Pattern, num_dense_cols: int, element_type: ElementType) -> dict[str, float | str]:
    """Microseconds of A B with all of A stored, warm (`us`) and with the L2 flushed (`cold_us`), each of the fastest way to
    ask for it. Raises RuntimeError where it does not run, ImportError without PyTorch."""
    import torch

    from benchmarks.measure.task_libraries import in_turns_us

    torch.backends.cuda.matmul.allow_tf32 = False
    calls = dense_calls(pattern, num_dense_cols, element_type, "cuda")
    warm = dict(zip(calls, in_turns_us(list(calls.values()), BATCHES)[0], strict=True))
    cold = {name: cold_us(call) for name, call in calls.items()}
    best = min(warm, key=warm.__getitem__)
    return {"routine": f"cublas_{best}_{element_type}", "us": warm[best], "cold_us": min(cold.values())}


def dense_calls(pattern: Pattern, num_dense_cols: int, element_type: ElementType, device: str) -> Calls:
    """The ways to ask PyTorch for it, by name, with operands drawn by formula: each gives A B, `linear` its transpose."""
    import torch

    values, dense = operands(pattern, num_dense_cols)
    kind = getattr(torch, element_type)
    a = torch.from_numpy(pattern.to_scipy(values).toarray()).to(device, kind)
    b = torch.from_numpy(dense).to(device, kind)
    rows = b.t().contiguous()
    calls: Calls = {"matmul": lambda: a @ b, "linear": lambda: torch.nn.functional.linear(rows, a)}
    if num_dense_cols == 1:
        calls["mv"] = lambda: torch.mv(a, b[:, 0])
    return calls


def operands(pattern: Pattern, num_dense_cols: int) -> tuple[Any, Any]:
    """Values [nnz] and B [num_cols, num_dense_cols], drawn by formula, float32."""
    random = np.random.default_rng(1)
    values = random.uniform(-1, 1, pattern.nnz).astype(np.float32)
    return values, random.uniform(-1, 1, (pattern.num_cols, num_dense_cols)).astype(np.float32)


def cold_us(call: Callable[[], Any]) -> float:
    """Median of single replays, each behind a write of more than the L2 holds and a pause, during which the host queues it:
    a host that compiles on all cores was once a millisecond late."""
    import torch

    from benchmarks.measure.task_libraries import captured

    cuda: Any = torch.cuda
    replay = captured(call, 1)
    num_bytes = FLUSH_FACTOR * int(cuda.get_device_properties(0).L2_cache_size)
    flushed = torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(COLD_RUNS)]
    replay()
    for run, (start, stop) in enumerate(events):
        flushed.fill_(run)
        cuda._sleep(PAUSE_CYCLES)
        start.record()
        replay()
        stop.record()
    cuda.synchronize()
    return float(statistics.median(start.elapsed_time(stop) for start, stop in events)) * 1000
