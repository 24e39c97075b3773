"""What a runner asks of a reference, of whichever suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class ReferenceError(Exception):
    """What is wrong with a reference, with the field that says so."""

    def __init__(self, message: str, field: str = "reference") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


@dataclass(frozen=True)
class Given:
    """One input as the suite has it."""

    original: str
    value: torch.Tensor
    is_parameter: bool = False
    """Of a seeded model."""


class ReferenceProblem(Protocol):
    """A reference that was read. Raises ReferenceError, and whatever its code raises."""

    def inputs(self, seed: int, sizes: Mapping[str, int]) -> list[Given]:
        """The same for the same seed."""
        ...

    def run(self, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Of inputs in this order, in any floating type."""
        ...


def type_name(tensor: torch.Tensor) -> str:
    """`float32`, `int64`, `bool`."""
    return str(tensor.dtype).removeprefix("torch.")


def results_of(found: Any, what: str) -> tuple[torch.Tensor, ...]:
    """Raises ReferenceError for what is no tensor and no number."""
    listed = tuple(found) if isinstance(found, tuple | list) else (found,)
    for place, each in enumerate(listed):
        if not isinstance(each, torch.Tensor | bool | int | float):
            raise ReferenceError(f"{what} returns {type(each).__name__} at place {place + 1}: tensors are needed")
    return tuple(each if isinstance(each, torch.Tensor) else torch.tensor(each) for each in listed)
