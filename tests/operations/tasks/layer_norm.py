"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    x = torch.from_numpy(inputs["x"]).double().permute(0, 2, 1)
    return {"y": torch.nn.functional.layer_norm(x, (sizes["features"],), eps=1e-5).permute(0, 2, 1).numpy()}


SPOILED = {
    "corrected variance": ("squares / features", "squares / (features - 1)"),
    "another epsilon": ("(T)1e-5", "(T)1e-3"),
    "no mean": ("mean = sum / features", "mean = 0"),
    "the last position left out": ("position >= positions", "position >= positions - 1"),
    "the first of the batch everywhere": ("blockIdx.y * features", "0 * features"),
}
