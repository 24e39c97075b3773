"""Who runs the references of imported tasks in this process: nobody, unless an evaluator has said so."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import Unavailable
from sparsesmith.operations.imported.card import Card, DrawKind
from sparsesmith.operations.operand import Sizes

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Result:
    """One output of a reference."""

    wide: npt.NDArray[np.float64]
    """Everything in float64."""
    own: npt.NDArray[np.float64]
    """In the task's own type, as the suite has it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a reference says of inputs."""

    results: Mapping[str, Result]
    num_terms: int
    """Inputs that one result depends on: what a sum of so many terms may lose is allowed."""


class References(Protocol):
    """Runs references, each in a process that may be lost. Raises SparsesmithError naming what one has done wrong."""

    def draw(self, folder: Path, card: Card, kind: DrawKind, sizes: Sizes, seed: int) -> Arrays:
        """Inputs by operand."""
        ...

    def answer(self, folder: Path, card: Card, sizes: Sizes, inputs: Arrays) -> Answer:
        """Of inputs in the operands' types."""
        ...


_installed: list[References] = []


def install(references: References) -> None:
    """From here on they answer in this process."""
    _installed[:] = [references]


def installed() -> References:
    """Raises Unavailable where no evaluator has brought any: somebody else's code never runs here."""
    if not _installed:
        raise Unavailable("the reference of an imported task is run by an evaluator alone, and this process is none")
    return _installed[0]
