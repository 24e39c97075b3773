"""KernelBench problems: a module with `Model`, `get_inputs` and `get_init_inputs`."""

import ast
import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.func import functional_call

from services.evaluator.references.problem import Given, ReferenceError, results_of
from sparsesmith.errors import InvalidInput
from sparsesmith.operations.imported.constants import with_constants

NEEDED = ("Model", "get_inputs", "get_init_inputs")


class KernelBenchProblem:
    """Implements the ReferenceProblem protocol."""

    def __init__(self, text: str, constants: Mapping[str, int]) -> None:
        self._names: dict[str, Any] = {"__name__": "reference"}
        exec(compile(_module(text, constants), "reference.py", "exec"), self._names)
        for name in NEEDED:
            if name not in self._names:
                raise ReferenceError(f"the module has no {name}: a KernelBench problem defines {', '.join(NEEDED)}")
        self._model = self._seeded(0)
        self._state = self._inputs_of_model()

    def inputs(self, seed: int, sizes: Mapping[str, int]) -> list[Given]:
        """See ReferenceProblem.inputs. Sizes are the module's own."""
        torch.manual_seed(seed)
        listed = list(self._names["get_inputs"]())
        model = self._seeded(seed)
        held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        parameters = [Given(name, held[name].detach().clone(), is_parameter=True) for name in self._state]
        named = zip(self._argument_names(len(listed)), listed, strict=True)
        return [*(Given(name, _tensor(value, name)) for name, value in named), *parameters]

    def run(self, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """See ReferenceProblem.run. The model is a fresh one each time: what it notes down does not stay."""
        model = copy.deepcopy(self._model)
        model.to(next((each.dtype for each in values if each.is_floating_point()), torch.float32))
        num_given = len(values) - len(self._state)
        arguments = [each.item() if self._is_number[place] else each for place, each in enumerate(values[:num_given])]
        state = dict(zip(self._state, values[num_given:], strict=True))
        return results_of(functional_call(model, state, tuple(arguments)), "Model.forward")

    def _seeded(self, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        model: torch.nn.Module = self._names["Model"](*self._names["get_init_inputs"]())
        return model

    def _inputs_of_model(self) -> list[str]:
        """Parameters, and buffers that the model does not write itself."""
        torch.manual_seed(0)
        listed = list(self._names["get_inputs"]())
        self._is_number = [not isinstance(each, torch.Tensor) for each in listed]
        model = copy.deepcopy(self._model)
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad():
            model(*listed)
        after = dict(model.named_buffers())
        kept = [name for name, buffer in before.items() if torch.equal(buffer, after[name])]
        return [*(name for name, _ in model.named_parameters()), *kept]

    def _argument_names(self, number: int) -> list[str]:
        parameters = list(inspect.signature(self._model.forward).parameters)
        return [*parameters, *(f"x{place}" for place in range(len(parameters), number))][:number]


def _module(text: str, constants: Mapping[str, int]) -> ast.Module:
    """Raises ReferenceError for a name that it does not assign."""
    try:
        return with_constants(text, constants)
    except InvalidInput as error:
        raise ReferenceError(error.message, "set") from error


def _tensor(value: Any, name: str) -> torch.Tensor:
    """Raises ReferenceError for what is neither array nor number."""
    if isinstance(value, bool | int | float):
        return torch.tensor(value)
    if not isinstance(value, torch.Tensor):
        raise ReferenceError(
            f"get_inputs: {name} is {type(value).__name__}: tensors and numbers are taken", "get_inputs"
        )
    return value.detach().contiguous()
