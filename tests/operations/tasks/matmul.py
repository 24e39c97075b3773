"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"c": (torch.from_numpy(inputs["a"]).double() @ torch.from_numpy(inputs["b"]).double()).numpy()}


SPOILED = {
    "the last term left out": ("i < k; i++", "i < k - 1; i++"),
    "ten bits": (
        "sum += a[(size_t)row * k + i]",
        "sum += __int_as_float(__float_as_int(a[(size_t)row * k + i]) & 0xffffe000)",
    ),
    "a scale of 1.001": ("+ col] = sum", "+ col] = sum * (T)1.001"),
    "b turned round": ("b[(size_t)i * n + col]", "b[(size_t)col * k + i]"),
    "the last column left out": ("col >= n", "col >= n - 1"),
}
