"""What a kernel family is: one expert strategy as a program template with every parameter explicit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparsesmith.errors import InvalidOption
from sparsesmith.formats.format import IntegerRange, NumberList, OneOf, ParameterSpec, ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.message import ElementType, Operation


@dataclass(frozen=True)
class Choice:
    """A family's parameters filled in, with what else a program text depends on."""

    values: Mapping[str, ParameterValue]
    element_type: ElementType
    num_dense_cols: int

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def word(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value


def _anything(_: Choice) -> bool:
    return True


@dataclass(frozen=True)
class Family:
    """An expert strategy for one operation."""

    name: str
    operation: Operation
    strategy: str
    """One sentence: what it does and where it wins."""
    parameters: Mapping[str, ParameterSpec]
    suits: Callable[[Pattern], bool]
    """Whether the strategy can work for a pattern at all; cheap, never builds a layout."""
    write: Callable[[Choice], str]
    """The program text of a legal choice."""
    allows: Callable[[Choice], bool] = _anything
    """Whether parameters within their ranges go together."""

    def accepts(
        self, parameters: Mapping[str, ParameterValue], element_type: ElementType, num_dense_cols: int = 1
    ) -> bool:
        """Whether `render` would give a program."""
        complete = parameters.keys() == self.parameters.keys()
        return (
            complete
            and all(_within(spec, parameters[name]) for name, spec in self.parameters.items())
            and self.allows(Choice(parameters, element_type, num_dense_cols))
        )

    def render(
        self, parameters: Mapping[str, ParameterValue], element_type: ElementType, num_dense_cols: int = 1
    ) -> str:
        """The kernel program. Every parameter must be given. Raises InvalidOption for a choice it does not accept."""
        if not self.accepts(parameters, element_type, num_dense_cols):
            given = " ".join(f"{name}={value}" for name, value in parameters.items())
            raise InvalidOption(
                f"family {self.name} does not accept {given} for {element_type}, num_dense_cols={num_dense_cols}",
                field="parameters",
                value=given,
                limit="; ".join(f"{name}: {_limits(spec)}" for name, spec in self.parameters.items()),
            )
        return self.write(Choice(parameters, element_type, num_dense_cols))


@dataclass(frozen=True)
class FamilyInstance:
    """A family with its parameters chosen, and the program that gives."""

    family: str
    parameters: dict[str, ParameterValue]
    program: str


def _within(spec: ParameterSpec, value: ParameterValue) -> bool:
    match spec:
        case IntegerRange():
            return isinstance(value, int) and spec.low <= value <= spec.high
        case OneOf():
            return value in spec.values
        case NumberList():
            return spec.is_legal(value)


def _limits(spec: ParameterSpec) -> str:
    match spec:
        case IntegerRange():
            return f"{spec.low}..{spec.high}"
        case OneOf():
            return ", ".join(map(str, spec.values))
        case NumberList():
            return spec.limit
