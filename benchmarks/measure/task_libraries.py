"""What libraries offer for each task: the rows that a user would have without us.

PyTorch's matrix product and dot product are cuBLAS's, its convolution and pooling cuDNN's or its own, its solver
cuSOLVER's. CUB and the driver's copy are compiled here (`cub_routines`); cuBLASLt, its algorithms timed first, is there
where nvmath-python is installed.

On a GPU each is captured in a CUDA graph as often as a batch lasts a millisecond, and timed by events, as the evaluator
times programs; results go where they went before, so that nothing is allocated while it is timed. TensorFloat-32 is off.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.measure.cub_routines import CUB, MEMCPY, Prepare, Tensors
from sparsesmith.operations.operand import Sizes

Call = Callable[[], torch.Tensor]
Routine = Callable[[Tensors, Sizes], torch.Tensor]
"""From inputs by name to the one result."""

TARGET_US = 1000.0
"""Of a batch, as `TimingBudget.target_batch_us`."""
MAX_REPEATS = 512
BATCHES = 20
CUBLASLT_ALGORITHMS = 32
"""That cuBLASLt is asked for, each of which is timed."""
NOT_CAPTURED = (("torch", "histogram"), ("cublaslt", "matmul"))
"""What waits for the device or cannot be captured: timed call by call, the host's part included."""

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


def prepared_matmul(given: Tensors, _: Sizes) -> Call:
    """cuBLASLt's fastest algorithm for these shapes, in float32. Raises ImportError without nvmath-python."""
    from nvmath.linalg import advanced

    options = {"compute_type": advanced.MatmulComputeType.COMPUTE_32F}
    product = advanced.Matmul(given["a"], given["b"], options=options)
    product.plan(preferences={"limit": CUBLASLT_ALGORITHMS})
    product.autotune()
    call: Call = product.execute
    return call


def _of_torch(routine: Routine) -> Prepare:
    return lambda given, sizes: lambda: routine(given, sizes)


LIBRARIES: Mapping[str, Mapping[str, Prepare]] = {
    "torch": {task: _of_torch(routine) for task, routine in ROUTINES.items()},
    "cub": {task: routine.prepared for task, routine in CUB.items()},
    "memcpy": {task: routine.prepared for task, routine in MEMCPY.items()},
    "cublaslt": {"matmul": prepared_matmul},
}
"""By library and task."""


def libraries_us(task: str, inputs: Mapping[str, Any], sizes: Sizes) -> tuple[dict[str, float], dict[str, str]]:
    """Microseconds of each library's call on the GPU; and of those that do not run, why not."""
    found, failed = dict[str, float](), dict[str, str]()
    for library, tasks in LIBRARIES.items():
        if task in tasks:
            try:
                found[library] = library_us(task, inputs, sizes, library)
            except (RuntimeError, ImportError) as error:
                failed[library] = str(error)[:200]
    cuda.empty_cache()  # The next task's inputs need the memory, in another process.
    return found, failed


def library_us(task: str, inputs: Mapping[str, Any], sizes: Sizes, library: str = "torch") -> float:
    """Microseconds of a call on the GPU, the median of batches. Raises RuntimeError where it does not run, ImportError
    where the library is not installed."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    call = LIBRARIES[library][task](tensors_of(inputs, "cuda"), sizes)
    again, repeats = _sized(call, calls if (library, task) in NOT_CAPTURED else captured)
    return statistics.median(batch_us(again, repeats) for _ in range(BATCHES))


def in_turns_us(sides: Sequence[Call], batches: int) -> tuple[list[float], bool]:
    """Microseconds of each call, the medians of batches taken in turns, so that drift falls on all alike; and whether
    they are of captured graphs. Where one side cannot be captured, all are called one by one."""
    try:
        made = [_sized(call, captured) for call in sides]
    except RuntimeError:
        cuda.synchronize()
        is_captured, made = False, [_sized(call, calls) for call in sides]
    else:
        is_captured = True
    times = [[batch_us(batch, repeats) for batch, repeats in made] for _ in range(batches)]
    return [statistics.median(each) for each in zip(*times, strict=True)], is_captured


def _sized(call: Call, make: Callable[[Call, int], Callable[[], None]]) -> tuple[Callable[[], None], int]:
    """A batch that lasts as long as it should, and how many calls it is of."""
    repeats = max(1, min(MAX_REPEATS, int(TARGET_US / batch_us(make(call, 4), 4))))
    return make(call, repeats), repeats


def calls(call: Call, repeats: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(repeats):
            call()

    return run


def captured(call: Call, repeats: int) -> Callable[[], None]:
    """Behind a few calls outside, on a stream of their own, as PyTorch asks for."""
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        calls(call, 3)()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        calls(call, repeats)()
    replay: Callable[[], None] = graph.replay
    return replay


def batch_us(batch: Callable[[], None], repeats: int) -> float:
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    batch()
    start.record()
    batch()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1000 / repeats
