"""What a kernel family is: one expert strategy as a program template with every parameter explicit, and the choices of
parameters that it thinks worth trying for a matrix."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sparsesmith.elements import WIDE_TYPES
from sparsesmith.errors import InvalidOption
from sparsesmith.families.estimates.cost import Prospect, Work
from sparsesmith.families.text.program import Choice
from sparsesmith.families.text.values import Compression
from sparsesmith.formats import format_named
from sparsesmith.formats.format import IntegerRange, NumberList, OneOf, ParameterSpec, ParameterValue
from sparsesmith.formats.values.storage import Constant, Float32, ValueStorage
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.kernel import Candidate, FromFamily
from sparsesmith_proto.message import ElementType, Operation


def _anything(_: Choice) -> bool:
    return True


def _any_storage(_: Choice, __: ValueStorage) -> bool:
    return True


@dataclass(frozen=True)
class FamilyInstance:
    """A family with its parameters chosen, and the program that gives."""

    family: str
    parameters: dict[str, ParameterValue]
    program: str
    """Every number in its place."""
    element_type: ElementType
    num_dense_cols: int = 1
    open_program: str | None = None
    """The same with facts of the matrix by name (`//@ let`), for the evaluator to fill in. None: it holds none."""

    @property
    def written(self) -> str:
        """What is proposed."""
        return self.program if self.open_program is None else self.open_program

    def candidate(self, candidate_id: str) -> Candidate:
        """To be graded, in the family's name."""
        origin = FromFamily(family=self.family, parameters=dict(self.parameters))
        return Candidate(candidate_id=candidate_id, program=self.written, origin=origin)


@dataclass(frozen=True, kw_only=True)
class KernelFamily:
    """An expert strategy for one operation."""

    name: str
    operation: Operation
    format: str
    strategy: str
    """One sentence: what it does and where it wins."""
    parameters: Mapping[str, ParameterSpec]
    suits: Callable[[Pattern], bool]
    """Whether the strategy can work for a pattern at all; cheap, never builds a layout."""
    write: Callable[[Choice], str]
    """The program text of a legal choice."""
    allows: Callable[[Choice], bool] = _anything
    """Whether parameters within their ranges go together."""
    element_types: tuple[ElementType, ...] = WIDE_TYPES
    """What it is written for; those of 16 bits need sums in `$S` and reads that are `$wide`."""
    has_facts: bool = False
    """Whether its programs hold numbers that follow from the matrix, which `Choice.fact` gives a name."""
    reorders: bool = False
    """Whether its programs multiply with rows and columns in another order, for requests that allow it."""

    def accepts(
        self, parameters: Mapping[str, ParameterValue], element_type: ElementType, num_dense_cols: int = 1
    ) -> bool:
        """Whether `render` would give a program."""
        if element_type not in self.element_types or parameters.keys() != self.parameters.keys():
            return False
        for name, spec in self.parameters.items():
            if not within(spec, parameters[name]):
                return False
        return self.allows(self._choice(parameters, element_type, num_dense_cols))

    def render(
        self,
        parameters: Mapping[str, ParameterValue],
        element_type: ElementType,
        num_dense_cols: int = 1,
        *,
        is_open: bool = False,
    ) -> str:
        """The kernel program; `is_open`: with facts of the matrix by name. Every parameter must be given.

        Raises InvalidOption for a choice it does not accept.
        """
        if not self.accepts(parameters, element_type, num_dense_cols):
            given = " ".join(f"{name}={value}" for name, value in parameters.items())
            types = f"element types: {', '.join(self.element_types)}"
            raise InvalidOption(
                f"family {self.name} does not accept {given} for {element_type}, num_dense_cols={num_dense_cols}",
                field="parameters",
                value=given,
                limit="; ".join([*(f"{name}: {limits_of(spec)}" for name, spec in self.parameters.items()), types]),
            )
        return self.write(replace(self._choice(parameters, element_type, num_dense_cols), is_open=is_open))

    def instance(
        self, parameters: dict[str, ParameterValue], element_type: ElementType, num_dense_cols: int = 1
    ) -> FamilyInstance:
        """The choice with its program. Raises InvalidOption as `render`."""
        program = self.render(parameters, element_type, num_dense_cols)
        open_program = self.render(parameters, element_type, num_dense_cols, is_open=True) if self.has_facts else None
        return FamilyInstance(self.name, parameters, program, element_type, num_dense_cols, open_program)

    def _choice(
        self, parameters: Mapping[str, ParameterValue], element_type: ElementType, num_dense_cols: int
    ) -> Choice:
        return Choice(parameters, element_type, num_dense_cols, self.operation, self.format)


@dataclass(frozen=True, kw_only=True)
class Family(KernelFamily):
    """A family for any values; some can read compressed ones as well."""

    prospects: Callable[[Work], Iterator[Prospect]]
    """Parameters worth trying for a workload. What they leave open of `registers` and `dependency` is tried both ways,
    where the family has those parameters (`proposal`)."""
    takes: Callable[[Choice, ValueStorage], bool] = _any_storage
    """Whether all its reads of values are named places that can take a storage."""

    def compressed(
        self,
        parameters: Mapping[str, ParameterValue],
        element_type: ElementType,
        num_dense_cols: int,
        compression: Compression,
        *,
        is_open: bool = False,
    ) -> str | None:
        """The program of an accepted choice with its values compressed; None where the two do not go together."""
        choice, storage = self._choice(parameters, element_type, num_dense_cols), compression.storage
        if isinstance(storage, Constant) and format_named(self.format).has_padding:
            return None
        if isinstance(storage, Float32) and element_type != "float64":
            return None
        if element_type not in WIDE_TYPES or not self.takes(choice, storage):
            return None
        return self.write(replace(choice, compression=compression, is_open=is_open))


def different(instances: Iterator[FamilyInstance]) -> Iterator[FamilyInstance]:
    """The first instance of each program text: parameters of a family may come to the same."""
    seen = set()
    for instance in instances:
        if instance.program not in seen:
            seen.add(instance.program)
            yield instance


def within(spec: ParameterSpec, value: ParameterValue) -> bool:
    """Whether a parameter may have that value."""
    match spec:
        case OneOf():  # Most are.
            return value in spec.values
        case IntegerRange():
            return isinstance(value, int) and spec.low <= value <= spec.high
        case NumberList():
            return spec.is_legal(value)


def limits_of(spec: ParameterSpec) -> str:
    """What a parameter may be, for people."""
    match spec:
        case IntegerRange():
            return f"{spec.low}..{spec.high}"
        case OneOf():
            return ", ".join(map(str, spec.values))
        case NumberList():
            return spec.limit
