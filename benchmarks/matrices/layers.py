"""Pruned layers of a Transformer, a ResNet-50 and a language model: a suite of its own. Made here, deterministic.

Shapes and shares as in DLMC (Gale et al., "The State of Sparsity in Deep Neural Networks", 2019), magnitude pruning by formula:
normal weights, rows of somewhat different scales, the smallest left out of the whole layer. DLMC's own matrices are another
suite (`suites.dlmc_sources`).
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import scipy.sparse

from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy

MATRIX_CLASS = "pruned NN weights"
DLMC_PREFIX = "dlmc_"
"""What names of DLMC's matrices begin with."""
SCALE_SPREAD = 0.1
"""Standard deviation of the logarithm of a row's scale: DLMC's row lengths differ by about as much."""

SHAPES: dict[str, tuple[int, int]] = {
    "transformer_attention": (512, 512),
    "transformer_ffn_in": (2048, 512),
    "transformer_ffn_out": (512, 2048),
    "resnet_group3_1x1": (1024, 256),
    "resnet_group3_3x3": (256, 2304),
    "resnet_group4_3x3": (512, 4608),
    "language_attention": (4096, 4096),
    "language_ffn": (11008, 4096),
}
"""Name -> rows and columns of the weights."""

PERCENT_PRUNED = (50, 70, 80, 90, 95, 98)
LARGE = 1 << 24
"""Weights of a layer from which it is pruned by 70 and 90 % only."""


def pruned_layer(num_rows: int, num_cols: int, percent: int, seed: int) -> Pattern:
    """So many per cent of the weights are left out, those of the least magnitude."""
    random = np.random.default_rng(seed)
    scales = np.exp(SCALE_SPREAD * random.standard_normal((num_rows, 1), np.float32))
    weights = np.abs(random.standard_normal((num_rows, num_cols), np.float32)) * scales
    num_left_out = num_rows * num_cols * percent // 100
    least = np.partition(weights.reshape(-1), num_left_out)[num_left_out]
    return pattern_from_scipy(scipy.sparse.csr_matrix(weights >= least))


def _is_measured(name: str, percent: int) -> bool:
    rows, cols = SHAPES[name]
    return rows * cols < LARGE or percent in (70, 90)


LAYERS: dict[str, Callable[[], Pattern]] = {
    f"layer_{name}_{percent}": partial(pruned_layer, *SHAPES[name], percent, seed)
    for seed, (name, percent) in enumerate(product(SHAPES, PERCENT_PRUNED))
    if _is_measured(name, percent)
}
"""Name -> maker."""


LLAMA_SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336))
"""Rows and columns of attention's weights and of the feed-forward network's, into it and out of it (Llama 3 8B)."""
LLAMA_PERCENT_PRUNED = (90, 70, 50, 60)

LLAMA: dict[str, Callable[[], Pattern]] = {
    f"llama_{rows}x{cols}_{percent}": partial(pruned_layer, rows, cols, percent, 100 + seed)
    for seed, (percent, (rows, cols)) in enumerate(product(LLAMA_PERCENT_PRUNED, LLAMA_SHAPES))
}
"""Name -> maker: for products in 16 bits."""
