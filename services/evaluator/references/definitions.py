"""flashinfer-bench Definitions: a function `run`, and arrays whose shapes and types stand beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from services.evaluator.references.problem import Given, ReferenceError, results_of

SMALL = {"int8": 128}
RANGE = 1024
"""Whole numbers that a workload calls random are drawn from -1024 to 1023 (of 8 bits: from all), as flashinfer-bench
draws them."""


class DefinitionProblem:
    """Implements the ReferenceProblem protocol."""

    def __init__(
        self, text: str, inputs: Sequence[Mapping[str, Any]], scalars: Mapping[str, bool | int | float]
    ) -> None:
        """`inputs`: name, axes and type of each, in order."""
        names: dict[str, Any] = {"__name__": "reference"}
        exec(compile(text, "reference.py", "exec"), names)
        if not callable(names.get("run")):
            raise ReferenceError("the reference has no function `run`")
        self._run = names["run"]
        self._inputs = inputs
        self._scalars = scalars

    def inputs(self, seed: int, sizes: Mapping[str, int]) -> list[Given]:
        """See ReferenceProblem.inputs."""
        torch.manual_seed(seed)
        return [self._drawn(each, sizes) for each in self._inputs]

    def run(self, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """See ReferenceProblem.run."""
        given = zip(self._inputs, values, strict=True)
        arguments = [value.item() if each["is_number"] else value for each, value in given]
        return results_of(self._run(*arguments), "run")

    def _drawn(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> Given:
        name, type_ = given["original"], getattr(torch, given["given"])
        shape = [sizes[axis] for axis in given["axes"]]
        if name in self._scalars:
            return Given(name, torch.tensor(self._scalars[name], dtype=type_), is_parameter=False)
        if type_.is_floating_point:
            return Given(name, torch.randn(shape).to(type_))
        if type_ == torch.bool:
            return Given(name, torch.randint(0, 2, shape).bool())
        most = SMALL.get(given["given"], RANGE)
        return Given(name, torch.randint(-most, most, shape).to(type_))
