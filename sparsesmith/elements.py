"""Element types: how the numbers of a workload are spelled in C, how wide they are, and their ids in prompts."""

from collections.abc import Mapping
from dataclasses import dataclass

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


ELEMENTS: Mapping[ElementType, Element] = {
    "float32": Element("float", 4, 0),
    "float64": Element("double", 8, 1),
}


def c_type(element_type: ElementType) -> str:
    """What `T` stands for in signatures and templates."""
    return ELEMENTS[element_type].c_type
