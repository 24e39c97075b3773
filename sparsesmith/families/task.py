"""Kernel families of tasks: operations without a matrix."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidOption
from sparsesmith.families.estimates.cost import DRAM_BYTES_A_US, L2_BYTES, L2_BYTES_A_US, LAUNCH_US, Prospect
from sparsesmith.families.family import FamilyInstance, limits_of, within
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue
from sparsesmith.operations import Operation, Problem
from sparsesmith.operations.texts import programs_for, with_element_type
from sparsesmith.program.numbers import knobs_of, listed_settings, set_knobs
from sparsesmith_proto.message import ElementType


@dataclass(frozen=True)
class TaskChoice:
    """A family's parameters filled in, for a problem."""

    values: Mapping[str, ParameterValue]
    problem: Problem

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    @property
    def element_bytes(self) -> int:
        return ELEMENTS[self.problem.element_type].num_bytes


def _anything(_: TaskChoice) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class TaskFamily:
    """An expert strategy for one task."""

    name: str
    operation: str
    strategy: str
    """One sentence: what it does and where it wins."""
    parameters: Mapping[str, ParameterSpec]
    write: Callable[[TaskChoice], str]
    """The program text of a legal choice, with `T` for the element type."""
    prospects: Callable[[Problem], Iterator[Prospect]]
    """Parameters worth trying for a problem."""
    allows: Callable[[TaskChoice], bool] = _anything
    """Whether parameters within their ranges go together, and with the problem."""
    is_template: bool = True
    """Whether `T` in the text stands for the element type."""

    def accepts(self, parameters: Mapping[str, ParameterValue], problem: Problem) -> bool:
        """Whether `instance` would give a program."""
        complete = parameters.keys() == self.parameters.keys()
        legal = complete and all(within(spec, parameters[name]) for name, spec in self.parameters.items())
        return legal and self.allows(TaskChoice(parameters, problem))

    def instance(self, parameters: dict[str, ParameterValue], problem: Problem) -> FamilyInstance:
        """The choice with its program. Raises InvalidOption for one that it does not accept."""
        if not self.accepts(parameters, problem):
            given = " ".join(f"{name}={value}" for name, value in parameters.items())
            raise InvalidOption(
                f"family {self.name} does not accept {given} for {dict(problem.sizes)}",
                field="parameters",
                value=given,
                limit="; ".join(f"{name}: {limits_of(spec)}" for name, spec in self.parameters.items()),
            )
        text = self.write(TaskChoice(parameters, problem))
        program = with_element_type(text, problem.element_type) if self.is_template else text
        return FamilyInstance(self.name, parameters, program, problem.element_type)


FLOPS_A_US = 30e6
"""Multiplications and additions in float32 that an H200 does of a program that is not tuned for them."""
_FIRST = 2.0
"""How much longer than the floor a first program is taken to need."""


def first_programs(operation: Operation, element_type: ElementType) -> list[TaskFamily]:
    """The programs that come with a task, as families: those without knobs together, each other one with its own."""
    texts = programs_for(operation, element_type)
    plain = [name for name in texts if not knobs_of(texts[name])]
    families = [_plain_programs(operation, plain)] if plain else []
    return families + [_open_program(operation, name) for name in texts if name not in plain]


def _plain_programs(operation: Operation, names: Sequence[str]) -> TaskFamily:
    return TaskFamily(
        name=f"{operation.name}_programs",
        operation=operation.name,
        strategy="The first programs of the task, as they stand in its folder.",
        parameters={"program": OneOf(names[0], tuple(names))},
        write=lambda choice: operation.programs[str(choice.values["program"])],
        prospects=lambda problem: (_first(problem, place, {"program": name}) for place, name in enumerate(names)),
    )


def _open_program(operation: Operation, name: str) -> TaskFamily:
    """Its knobs are the parameters; its first values are tried with the programs that have none."""
    text = operation.programs[name]
    knobs = knobs_of(text)
    return TaskFamily(
        name=f"{operation.name}_{name}",
        operation=operation.name,
        strategy=f"The program {name} of the task's folder, with knobs.",
        parameters={knob.name: OneOf(knob.values[0], knob.values) for knob in knobs},
        write=lambda choice: set_knobs(text, choice.values),
        prospects=lambda problem: (
            _first(problem, min(place, 1), settings) for place, settings in enumerate(listed_settings(knobs))
        ),
    )


def _first(problem: Problem, place: int, parameters: dict[str, ParameterValue]) -> Prospect:
    return Prospect((_FIRST + place) * floor_us(problem), parameters)


def floor_us(problem: Problem) -> float:
    """About what no correct program of a task is faster than on an H200: a launch, and the bytes or the arithmetic."""
    floor = problem.floor
    bytes_a_us = L2_BYTES_A_US if floor.bytes_moved < L2_BYTES else DRAM_BYTES_A_US
    return LAUNCH_US + max(floor.bytes_moved / bytes_a_us, floor.flops / FLOPS_A_US)
