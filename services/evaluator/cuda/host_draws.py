"""Draws of any problem on a GPU, made on the host, several at once, and uploaded one after another: the same inputs and
expectations as without a GPU.

Beside the draws of a batch stand, ready before the first program runs, changed ones (`checking.changes`) and a few with
everything new, on which what was timed is run again. They are the same for all programs of a batch, whose texts were
fixed before; none sees what another left.

What it does not protect against: what `checking.changes` names.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import cupy
import numpy as np

from services.evaluator.checking.changes import Change
from services.evaluator.checking.draw_memory import num_changed
from services.evaluator.checking.drawn_at_once import Batch, Drawn, Fresh, OfKind, draw_at_once, room_for
from services.evaluator.checking.draws import draw as draw_on_host
from services.evaluator.checking.draws import system_generator
from services.evaluator.cuda.carriers import carried, uncarried
from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.device import Array, Draw
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import Expected

CHANGES_LIMIT_S = 3.0
"""Of a batch: each costs a reference on the host or several. Large problems get fewer; one at least is made, however
long it takes, unless none of the values that are tried for it shows in the result."""


@dataclass(frozen=True, eq=False)
class DeviceChange:
    """One entry of one input with another value."""

    operand: str
    index: int
    value: "cupy.ndarray"
    """Shape [1]."""
    draw: Draw
    """What is right then, without inputs: no program is given them as a whole."""


class HostDraws:
    """Of one problem."""

    def __init__(self, problem: Problem, held: HeldDraws, num_fresh: int) -> None:
        """`num_fresh`: draws with everything new, two at least."""
        self._problem = problem
        self._num_fresh = num_fresh
        self._held = held
        self._generator = system_generator()
        self.changed: tuple[DeviceChange, ...] = ()
        """Of the draw that is timed, each on top of the one before."""
        self.fresh: tuple[Draw, ...] = ()

    def draw(self, name: str, seed: int | None = None) -> Draw:
        """One set of inputs, kept as long as somebody refers to it; see `DeviceWorkload.draw` on the seed. Raises
        cupy.cuda.memory.OutOfMemoryError."""
        generator = self._generator if seed is None else np.random.default_rng(seed)
        return self._held.hold(_uploaded(draw_on_host(name, self._problem, generator)))

    def draws(self, names: Sequence[str], *, are_timed: bool = True) -> tuple[Draw, ...]:
        """See DeviceWorkload.draws; without what programs are run again on where none is timed and vouched for on them.
        Raises cupy.cuda.memory.OutOfMemoryError."""
        batch = Batch(names)
        if are_timed:
            self.changed = self.fresh = ()
            batch = Batch(names, self._num_fresh, num_changed(self._problem), CHANGES_LIMIT_S)
        found: dict[int, Draw] = {}

        def take(drawn: Drawn) -> None:
            match drawn:
                case OfKind():
                    found[drawn.place] = self._held.hold(_uploaded(drawn.draw))
                case Fresh():
                    self.fresh += (self._held.hold(_uploaded(drawn.draw)),)
                case Change():
                    self.changed += (self._changed(drawn),)
                case _:
                    assert_never(drawn)

        draw_at_once(self._problem, batch, self._generator, room_for(self._problem), take)
        return tuple(found[place] for place in range(len(names)))

    def vouch(self) -> None:
        """References are made on the host, by the operation itself."""

    def pattern_arrays(self) -> dict[str, Array]:
        """Nothing that references are computed from lies in device memory."""
        return {}

    @property
    def beside(self) -> tuple[Draw, ...]:
        """What stands in device memory beside the draws of a batch."""
        return (*self.fresh, *(change.draw for change in self.changed))

    def next_fresh(self, before: Draw | None) -> Draw:
        """A fresh draw, another than before."""
        return secrets.choice([each for each in self.fresh if each is not before])

    def _changed(self, change: Change) -> DeviceChange:
        with cuda_errors():
            value = cupy.asarray(carried(change.value))
        judged = self._held.hold(replace(_judged(change.draw), inputs={}))
        return DeviceChange(change.operand, change.index, value, judged)


def _uploaded(host: Draw) -> Draw:
    """With its arrays in device memory."""
    with cuda_errors():
        inputs = {name: cupy.asarray(carried(array)) for name, array in host.inputs.items()}
    return replace(_judged(host), inputs=inputs)


def _on_device(array: Array) -> "cupy.ndarray":
    return cupy.asarray(np.ascontiguousarray(array))


def _judged(host: Draw) -> Draw:
    """With what it is judged by in device memory; residuals are found on the host."""
    residuals = host.residuals
    with cuda_errors():
        expected = {
            name: Expected(*map(_on_device, (each.reference, each.magnitude, each.bound)))
            for name, each in host.expected.items()
        }
    if residuals is None:
        return replace(host, expected=expected)
    found = residuals
    return replace(
        host,
        expected=expected,
        residuals=lambda outputs: found({name: uncarried(output.get()) for name, output in outputs.items()}),
    )
