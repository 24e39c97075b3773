"""Element types: how the numbers of a workload are spelled in C, how wide they are, and their ids in prompts.

Numbers of 16 bits are stored as such and summed in float32: no kernel is right that sums them in 16 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsesmith_proto.message import ElementType

RESERVED_ELEMENT_IDS = 16
"""Ids that a policy keeps room for: a new type never makes shipped weights unloadable."""


@dataclass(frozen=True)
class Element:
    """One element type."""

    c_type: str
    num_bytes: int
    header_id: int
    """Handed out once and for all, below RESERVED_ELEMENT_IDS."""
    sums: ElementType
    """The type that products are summed in."""
    header: str = ""
    """What a program of this type includes; empty for C's own types."""
    widen: str = ""
    """The CUDA function from this type to that of sums; empty where they are the same."""
    narrow: str = ""
    """The way back, rounded to nearest."""


ELEMENTS: Mapping[ElementType, Element] = {
    "float32": Element("float", 4, 0, "float32"),
    "float64": Element("double", 8, 1, "float64"),
    "float16": Element("__half", 2, 2, "float32", "cuda_fp16.h", "__half2float", "__float2half"),
    "bfloat16": Element("__nv_bfloat16", 2, 3, "float32", "cuda_bf16.h", "__bfloat162float", "__float2bfloat16"),
}

ALL_TYPES: tuple[ElementType, ...] = tuple(ELEMENTS)
WIDE_TYPES: tuple[ElementType, ...] = tuple(name for name, element in ELEMENTS.items() if element.sums == name)
"""Those that are summed as they are stored."""


def c_type(element_type: ElementType) -> str:
    """What `T` stands for in signatures and templates."""
    return ELEMENTS[element_type].c_type


def sum_c_type(element_type: ElementType) -> str:
    """What products are summed in."""
    return c_type(ELEMENTS[element_type].sums)


def dtype_of(element_type: ElementType) -> np.dtype[Any]:
    """NumPy's type. Of bfloat16 it is that of ml_dtypes, which is imported only then."""
    if element_type != "bfloat16":
        return np.dtype(element_type)
    from ml_dtypes import bfloat16

    found: np.dtype[Any] = np.dtype(bfloat16)
    return found
