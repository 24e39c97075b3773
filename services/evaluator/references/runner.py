"""The process of one reference: answers questions about it until nobody asks any more.

It was forked by `forks` and confined before this begins; its limits of memory are the kernel's, those of time are
watched by whoever asks.
"""

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.flop_counter import FlopCounterMode

from services.evaluator.references.definitions import DefinitionProblem
from services.evaluator.references.kernelbench import KernelBenchProblem
from services.evaluator.references.problem import Given, ReferenceError, ReferenceProblem, type_name
from services.evaluator.references.widening import widened
from services.evaluator.references.wire import receive, send

Tensors = Sequence[torch.Tensor]
Arrays = Mapping[str, npt.NDArray[Any]]

NUM_SAMPLED = 4
"""Entries of the first floating result at which it is counted how many inputs they depend on."""
NUM_LOOKED_AT = 256
"""Entries that those are taken from."""
JITTER = 0.25
OTHER_THREADS = 3
MAX_WORDS = 500
"""Of what a reference says when it fails, in characters."""


def serve(connection: Connection) -> None:
    """Main loop."""
    torch.set_num_threads(1)
    runner: Runner | None = None
    while True:
        try:
            header, arrays = receive(connection)
        except EOFError:
            return
        try:
            runner = runner or Runner(header["source"])
            reply, results = runner.answer(header, arrays)
        except ReferenceError as error:
            reply, results = {"error": error.message, "field": error.field}, {}
        except Exception as error:  # Whatever somebody's code raises is told to whoever asked.
            reply, results = {"error": f"{type(error).__name__}: {error}"[:MAX_WORDS], "field": "reference"}, {}
        send(connection, reply, results)


class Runner:
    """One reference."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._problem = _problem_of(source)
        self._num_terms: dict[str, int] = {}

    def answer(self, header: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays of the reply."""
        sizes: Mapping[str, int] = header["sizes"]
        match header["question"]:
            case "describe":
                return self._described(sizes), {}
            case "draw":
                drawn = _of_kind(header["kind"], self._problem.inputs(header["seed"], sizes), header["seed"])
                return {}, {str(place): _array(each.value) for place, each in enumerate(drawn)}
            case "answer":
                values = [torch.from_numpy(arrays[str(place)]) for place in range(len(arrays))]
                return self._answered(values, sizes, header["types"])
            case "otherwise":
                values = [torch.from_numpy(arrays[str(place)]) for place in range(len(arrays))]
                return {}, self._otherwise(values, header["types"])
            case other:
                raise ReferenceError(f"no question: {other}")

    def _described(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        given = self._problem.inputs(0, sizes)
        with FlopCounterMode(display=False) as counter:
            results = self._run([each.value for each in given])
        return {
            "inputs": [
                {
                    "original": each.original,
                    "given": type_name(each.value),
                    "shape": list(each.value.shape),
                    "is_parameter": each.is_parameter,
                }
                for each in given
            ],
            "outputs": [{"given": type_name(each), "shape": list(each.shape)} for each in results],
            "flops": int(counter.get_total_flops()),
        }

    def _answered(
        self, values: Tensors, sizes: Mapping[str, int], types: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        own = self._run([each.to(getattr(torch, type_)) for each, type_ in zip(values, types, strict=True)])
        wide = self._wide(values, types)
        if [each.shape for each in own] != [each.shape for each in wide]:
            raise ReferenceError("in float64 it returns other shapes than in its own type")
        arrays = {f"own {place}": each.double().numpy() for place, each in enumerate(own)}
        arrays |= {f"wide {place}": each.double().numpy() for place, each in enumerate(wide)}
        return {"num_terms": self._terms(sizes), "types": [type_name(each) for each in own]}, arrays

    def _otherwise(self, values: Tensors, types: Sequence[str]) -> dict[str, Any]:
        """In its own type by others of torch's routines, its sums split for several threads."""
        typed = [each.to(getattr(torch, type_)) for each, type_ in zip(values, types, strict=True)]
        torch.set_num_threads(OTHER_THREADS)
        with torch.backends.mkldnn.flags(enabled=False):
            results = self._run(typed)
        torch.set_num_threads(1)
        return {str(place): each.double().numpy() for place, each in enumerate(results)}

    def _run(self, values: Tensors) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return tuple(each.detach() for each in self._problem.run([each.clone() for each in values]))

    def _wide(self, values: Tensors, types: Sequence[str]) -> tuple[torch.Tensor, ...]:
        with torch.no_grad(), widened():
            return tuple(each.detach() for each in self._problem.run(_wide_of(values, types)))

    def _terms(self, sizes: Mapping[str, int]) -> int:
        """See `imported.bound`; once a set of sizes."""
        key = str(sorted(sizes.items()))
        if key not in self._num_terms:
            given = [each.value for each in self._problem.inputs(0, sizes)]
            self._num_terms[key] = num_terms(self._problem, given)
        return self._num_terms[key]


def warm_up() -> None:
    """Imports what counting takes, hundreds of modules, before there are processes that would each do it again."""
    torch.set_num_threads(1)
    with FlopCounterMode(display=False), widened():
        torch.ones(2, 2) @ torch.ones(2, 2)


def num_terms(problem: ReferenceProblem, values: Tensors) -> int:
    """How many entries of the inputs one result depends on at most, of some results, by their derivatives: of results
    that are not zero, where there are any, since those of a triangle depend on nothing elsewhere.

    Where nothing can be differentiated: as if each entry were used by one result.
    """
    wide = _wide_of(values, [type_name(each) for each in values])
    inputs = [each.requires_grad_() for each in wide if each.is_floating_point()]
    with widened(), torch.enable_grad():
        results = problem.run(wide)
    result = next((each for each in results if each.requires_grad and each.numel()), None)
    if result is None:
        return max(1, sum(each.numel() for each in values) // max(1, sum(each.numel() for each in results)))
    flat, most = result.reshape(-1), 1
    for place in _telling_places(flat.detach()):
        slopes = torch.autograd.grad(flat[place], inputs, retain_graph=True, allow_unused=True)
        most = max(most, sum(int(slope.count_nonzero()) for slope in slopes if slope is not None))
    return most


def _telling_places(flat: torch.Tensor) -> list[int]:
    """Of some results, those that are not zero first."""
    places = np.random.default_rng(1).integers(flat.numel(), size=NUM_LOOKED_AT)
    is_zero = (flat[torch.from_numpy(places)] == 0).numpy()
    return [int(place) for place in places[np.argsort(is_zero, kind="stable")][:NUM_SAMPLED]]


def _wide_of(values: Tensors, types: Sequence[str]) -> list[torch.Tensor]:
    """Floating ones in float64, others in their own type; memory of their own."""
    typed = ((each, getattr(torch, type_)) for each, type_ in zip(values, types, strict=True))
    return [each.detach().to(torch.float64 if type_.is_floating_point else type_).clone() for each, type_ in typed]


def _problem_of(source: Mapping[str, Any]) -> ReferenceProblem:
    match source["origin"]:
        case "kernelbench":
            return KernelBenchProblem(source["text"], source["constants"])
        case "flashinfer-bench":
            return DefinitionProblem(source["text"], source["inputs"], source["scalars"])
        case other:
            raise ReferenceError(f"no suite: {other}")


def _of_kind(kind: str, given: list[Given], seed: int) -> list[Given]:
    """`given`: as the suite draws them. `scaled`: every floating input times a number of its own from 1/2 to 2.
    `centred`: those that are not zero less their mean, then scaled. In both a model's parameters are what they are by
    their seed, scaled, and a quarter of their size off: a weight that is always 1 is seen. Zeros, triangles, symmetry
    and order of the inputs stay."""
    if kind == "given":
        return given
    generator = torch.Generator().manual_seed(seed % 2**62)
    return [Given(each.original, _changed(kind, each, generator), each.is_parameter) for each in given]


def _changed(kind: str, given: Given, generator: torch.Generator) -> torch.Tensor:
    value = given.value
    if not value.is_floating_point() or not value.numel():
        return value
    scale = 2 ** float(torch.empty(()).uniform_(-1, 1, generator=generator))
    wide = value.double()
    if given.is_parameter:
        size = float(wide.square().mean().sqrt()) or 1.0
        jitter = torch.empty(wide.shape, dtype=torch.float64).uniform_(-1, 1, generator=generator)
        return (scale * wide + JITTER * size * jitter).to(value.dtype)
    if kind == "centred" and value.numel() > 1:
        wide = torch.where(wide != 0, wide - wide.mean(), wide)
    return (scale * wide).to(value.dtype)


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """In host memory, 16-bit numbers wide: NumPy does not know all of them."""
    wide = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    array: npt.NDArray[Any] = wide.detach().contiguous().numpy()
    return array
