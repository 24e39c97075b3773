"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    logits, labels = torch.from_numpy(inputs["logits"]).double(), torch.from_numpy(inputs["labels"]).long()
    return {"loss": torch.nn.functional.cross_entropy(logits, labels).numpy()}


SPOILED = {
    "no largest": ("exp(from[c] - largest)", "exp(from[c])"),
    "the last class left out": ("int c = 0; c < classes; c++", "int c = 0; c < classes - 1; c++"),
    "the next label": ("from[labels[i]]", "from[(labels[i] + 1) % classes]"),
    "not divided": ("*wide / n", "*wide"),
    "added to what was there": ("*wide = 0;", ""),
}
