"""A storage format whose values are stored compressed: legal only where the request fixes the values."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS
from sparsesmith.formats.format import Argument, Format, Layout, Parameters, ParameterSpec
from sparsesmith.formats.values.storage import (
    RowDictionary,
    SlotGrid,
    ValueStorage,
    stored_arguments,
    stored_layout,
)
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues


@dataclass(frozen=True)
class Compressed(Format):
    """Any format, with what a value storage puts in the place of its argument `values`."""

    plain: Format
    storage: ValueStorage

    @property
    def name(self) -> str:
        return self.plain.name

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return self.plain.parameters

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return tuple(
            stored
            for argument in self.plain.arguments(parameters)
            for stored in (stored_arguments(self.storage, argument) if argument.role == "values" else (argument,))
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """Raises InvalidProgram: without the values there is no layout (see `build_layout`)."""
        raise InvalidProgram(
            f"`//@ values {self.storage}` is legal only where the request fixes the values (values=fixed): this "
            "program must be right for any values",
            field="values",
            value=str(self.storage),
            limit="values=fixed",
        )

    def build_with(self, pattern: Pattern, parameters: Parameters, values: FixedValues) -> Layout:
        """Raises InvalidProgram where the pattern or the values do not fit."""
        layout = self.plain.build(pattern, self.layout_parameters(parameters))
        strides = {"num_rows": pattern.num_rows, **layout.sizes}
        slots = self.plain.grid_of_slots
        grid = None if slots is None else SlotGrid(pattern.num_rows, strides[slots.stride])
        return stored_layout(self.storage, layout, values.array, grid)

    def layout_parameters(self, parameters: Parameters) -> Parameters:
        """Those that the plain format is built with: where rows have a code, slots have no order to choose."""
        slots = self.plain.grid_of_slots
        return {**parameters, **slots.parameters} if slots and isinstance(self.storage, RowDictionary) else parameters

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        """Raises TypeError: which slots are padding is not kept."""
        raise TypeError("a layout with compressed values does not say which slots are padding; restore the plain one")


def compressed(plain: Format, storage: ValueStorage) -> Compressed:
    """The format with that value storage. Raises InvalidProgram where they do not go together."""
    if isinstance(storage, RowDictionary) and plain.grid_of_slots is None:
        legal = ", ".join(sorted(format_.name for format_ in FORMATS.values() if format_.grid_of_slots))
        raise InvalidProgram(
            f"`//@ values {storage}` goes with the formats {legal}, not with {plain.name}",
            field="values",
            value=plain.name,
            limit=legal,
        )
    return Compressed(plain, storage)


def build_layout(format_: Format, parameters: Parameters, pattern: Pattern, values: FixedValues | None) -> Layout:
    """The layout of any format. `values`: None where the request does not fix them.

    Raises InvalidProgram where the pattern or the values do not fit, or a compressed format is given no values.
    """
    if isinstance(format_, Compressed) and values is not None:
        return format_.build_with(pattern, parameters, values)
    return format_.build(pattern, parameters)


def storage_name(format_: Format) -> str:
    """`dia`, or `dia values=rows code=u8`."""
    return f"{format_.name} values={format_.storage}" if isinstance(format_, Compressed) else format_.name
