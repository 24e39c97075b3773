"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    q, k, v = (torch.from_numpy(inputs[name]).double().transpose(0, 1) for name in ("q", "k", "v"))
    return {"y": torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).contiguous().numpy()}


SPOILED = {
    "no scale": (" / sqrt((T)head_dim)", ""),
    "no largest": ("- largest", ""),
    "the last key left out": ("for (int j = 0; j < n; j++)", "for (int j = 0; j < n - 1; j++)"),
    "one head for all": ("place / head_dim * head_dim", "0"),
    "shares that do not add up to 1": ("sum / total", "sum / total * (T)1.001"),
    "a sum for the largest": ("if (found > largest) largest = found", "largest += found"),
}
