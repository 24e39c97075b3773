"""What PyTorch offers for each task: the row that a user would have without us.

On a GPU each is captured in a CUDA graph as often as a batch lasts a millisecond, and timed by events, as the evaluator
times programs; results go where they went before, so that nothing is allocated while it is timed. TensorFloat-32 is off.
"""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from sparsesmith.operations.operand import Sizes

Tensors = Mapping[str, torch.Tensor]
Routine = Callable[[Tensors, Sizes], torch.Tensor]
"""From inputs by name to the one result."""

TARGET_US = 1000.0
"""Of a batch, as `TimingBudget.target_batch_us`."""
MAX_REPEATS = 512
BATCHES = 20
NOT_CAPTURED = ("histogram",)
"""What waits for the device and cannot be captured: timed call by call, the host's part included."""

cuda: Any = torch.cuda
"""Of which mypy knows only a part."""


def _layer_norm(given: Tensors, sizes: Sizes) -> torch.Tensor:
    moved = given["x"].permute(0, 2, 1)
    return functional.layer_norm(moved, (sizes["features"],), eps=1e-5).permute(0, 2, 1)


def _least_squares(given: Tensors, _: Sizes) -> torch.Tensor:
    """By the normal equations, as programs do."""
    gram, right = given["a"].T @ given["a"], given["a"].T @ given["b"]
    weights: torch.Tensor = torch.linalg.solve_ex(gram, right[:, None])[0][:, 0]
    return weights


def _attention(given: Tensors, _: Sizes) -> torch.Tensor:
    q, k, v = (given[name].transpose(0, 1)[None] for name in ("q", "k", "v"))
    return functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)


ROUTINES: Mapping[str, Routine] = {
    "sigmoid": lambda given, _: torch.sigmoid(given["x"]),
    "relu": lambda given, _: torch.relu(given["x"]),
    "copy": lambda given, _: given["x"].clone(),
    "transpose": lambda given, _: given["x"].t().contiguous(),
    "reverse": lambda given, _: torch.flip(given["x"], [0]),
    "sum": lambda given, _: torch.sum(given["x"]),
    "dot": lambda given, _: torch.dot(given["x"], given["y"]),
    "mse": lambda given, _: functional.mse_loss(given["x"], given["y"]),
    "monte_carlo": lambda given, _: torch.mean(given["values"]),
    "prefix_sum": lambda given, _: torch.cumsum(given["x"], 0),
    "softmax": lambda given, _: torch.softmax(given["x"], 1),
    "layer_norm": _layer_norm,
    "cross_entropy": lambda given, _: functional.cross_entropy(given["logits"], given["labels"]),
    "histogram": lambda given, sizes: torch.bincount(given["keys"], minlength=sizes["bins"]),
    "least_squares": _least_squares,
    "matmul": lambda given, _: given["a"] @ given["b"],
    "conv2d": lambda given, _: functional.conv2d(given["x"][None, None], given["weights"][None, None])[0, 0],
    "max_pool3d": lambda given, _: functional.max_pool3d(given["x"], 3, stride=2, padding=1, dilation=3),
    "attention": _attention,
    "top_k": lambda given, sizes: torch.topk(given["x"], sizes["k"]).values,
    "sort": lambda given, _: torch.sort(given["x"]).values,
}


def tensors_of(inputs: Mapping[str, Any], device: str = "cpu") -> Tensors:
    """Labels as PyTorch wants them: 64 bits wide."""
    given = {name: torch.from_numpy(np.array(array)).to(device) for name, array in inputs.items()}
    return {name: tensor.long() if name == "labels" else tensor for name, tensor in given.items()}


def library_us(task: str, inputs: Mapping[str, Any], sizes: Sizes) -> float:
    """Microseconds of a call on the GPU, the median of batches. Raises RuntimeError where it does not run."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    given, call = tensors_of(inputs, "cuda"), ROUTINES[task]

    def batch(repeats: int) -> Callable[[], None]:
        return _calls(call, given, sizes, repeats) if task in NOT_CAPTURED else _captured(call, given, sizes, repeats)

    repeats = max(1, min(MAX_REPEATS, int(TARGET_US / _batch_us(batch(4), 4))))
    again = batch(repeats)
    return statistics.median(_batch_us(again, repeats) for _ in range(BATCHES))


def _calls(call: Routine, given: Tensors, sizes: Sizes, repeats: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(repeats):
            call(given, sizes)

    return run


def _captured(call: Routine, given: Tensors, sizes: Sizes, repeats: int) -> Callable[[], None]:
    """Behind a few calls outside, on a stream of their own, as PyTorch asks for."""
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        _calls(call, given, sizes, 3)()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        _calls(call, given, sizes, repeats)()
    replay: Callable[[], None] = graph.replay
    return replay


def _batch_us(batch: Callable[[], None], repeats: int) -> float:
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    batch()
    start.record()
    batch()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1000 / repeats
