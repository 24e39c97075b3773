"""flashinfer-bench Definitions and Workloads: the same fields, and nothing of theirs is run to read them."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError

from sparsesmith.errors import InvalidInput, InvalidOption
from sparsesmith.operations.imported.card import Card, Frozen, GivenType, ImportedOperand
from sparsesmith.operations.imported.constraints import is_about
from sparsesmith_proto.message import ElementType

MAX_WORKLOADS = 16
"""That a task keeps as sizes at which it is measured."""
TRIAL_SIZE = 7
"""Of an axis that no workload names a size for."""


class ConstAxis(Frozen):
    """A size that is always the same."""

    type: Literal["const"] = "const"
    value: int = Field(ge=0)
    description: str | None = None


class VarAxis(Frozen):
    """A size that a workload names."""

    type: Literal["var"] = "var"
    description: str | None = None


class TensorSpec(Frozen):
    """An array, or one number where it has no shape."""

    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class Definition(Frozen):
    """What is computed."""

    name: str = Field(min_length=1)
    op_type: str = ""
    axes: dict[str, Annotated[ConstAxis | VarAxis, Field(discriminator="type")]]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec] = Field(min_length=1)
    reference: str = Field(min_length=1, max_length=1 << 20)
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As it is kept."""
        return self.model_dump_json(indent=2, exclude_unset=True) + "\n"


class InputSpec(Frozen):
    """Where a workload has an input from."""

    type: Literal["random", "scalar", "safetensors"]
    value: bool | int | float | None = None
    path: str | None = None
    tensor_key: str | None = None


class SuiteWorkload(Frozen):
    """Sizes of the variable axes, and where inputs come from."""

    uuid: str = ""
    axes: dict[str, int]
    inputs: dict[str, InputSpec] = Field(default={})


def read_definition(text: str, path: Path | str) -> Definition:
    """Raises InvalidOption naming the field."""
    try:
        definition = Definition.model_validate_json(text)
    except ValidationError as error:
        raise _invalid(path, error) from error
    _check_reference(definition, path)
    _check_shapes(definition, path)
    return definition


def read_workloads(path: Path, definition: Definition) -> list[SuiteWorkload]:
    """Of the file beside it with the same name and `.jsonl`, or of `workloads/`; none where there is neither. Lines may
    be workloads or traces that have one. Raises InvalidOption."""
    places = (path.with_suffix(".jsonl"), path.parent / "workloads" / f"{definition.name}.jsonl")
    found = next((place for place in places if place.exists()), None)
    if found is None:
        return []
    return read_workload_lines(found.read_text(encoding="utf-8"), str(found))


def read_workload_lines(text: str, where: str) -> list[SuiteWorkload]:
    """One a line, so many as are kept. Raises InvalidOption naming the line."""
    lines = enumerate(text.splitlines(), start=1)
    return [read_workload(line, f"{where}:{number}") for number, line in lines if line.strip()][:MAX_WORKLOADS]


def card_of_definition(definition: Definition, workloads: list[SuiteWorkload], name: str) -> Card:
    """Raises InvalidInput for what kernels of ours cannot be about."""
    names = {axis: _axis_name(axis) for axis in definition.axes}
    fixed = {names[axis]: each.value for axis, each in definition.axes.items() if isinstance(each, ConstAxis)}
    axes = tuple(names[axis] for axis, each in definition.axes.items() if isinstance(each, VarAxis))
    operands = tuple(_operands(definition, names))
    scalars = _scalars(definition, workloads)
    published = tuple({names[axis]: size for axis, size in each.axes.items() if axis in names} for each in workloads)
    told = [_with_names(text, names) for text in definition.constraints]
    try:
        return Card(
            name=re.sub(r"[^a-z0-9]+", "_", name.lower())[:32].strip("_"),
            origin="flashinfer-bench",
            formula=(definition.description or definition.name)[:1000],
            element_type=_element_type(operands, definition),
            axes=axes,
            fixed=fixed,
            operands=operands,
            scalars=scalars,
            constraints=tuple(text for text in told if is_about(text, names.values())),
            published=published,
            trial=min(published, key=lambda sizes: sum(sizes.values()))
            if published
            else dict.fromkeys(axes, TRIAL_SIZE),
            flags=tuple(f"constraint left out: {text}" for text in told if not is_about(text, names.values())),
        )
    except ValidationError as error:
        raise _invalid(definition.name, error) from error


def _operands(definition: Definition, names: Mapping[str, str]) -> Iterator[ImportedOperand]:
    for original, spec in definition.inputs.items():
        yield _operand(original, spec, "input", names)
    for original, spec in definition.outputs.items():
        yield _operand(original, spec, "output", names)


def _operand(
    original: str, spec: TensorSpec, role: Literal["input", "output"], names: Mapping[str, str]
) -> ImportedOperand:
    if spec.dtype not in get_args(GivenType):
        known = ", ".join(get_args(GivenType))
        raise InvalidInput(
            f"{role}s.{original}.dtype is {spec.dtype}, taken: {known}", field=f"{role}s.{original}", limit=known
        )
    given: GivenType = spec.dtype  # type: ignore[assignment]
    axes = tuple(names[axis] for axis in spec.shape or ())
    name = _axis_name(original)
    return ImportedOperand(
        name=f"{name}_in" if name in names.values() else name,
        role=role,
        axes=axes,
        given=given,
        original=original,
        is_number=spec.shape is None,
    )


def _element_type(operands: tuple[ImportedOperand, ...], definition: Definition) -> ElementType:
    types = sorted({each.given for each in operands if each.is_floating}) or ["float32"]
    if len(types) > 1:
        raise InvalidInput(
            f"{definition.name}: its arrays are {' and '.join(types)}: one floating type is taken",
            field="dtype",
            value=", ".join(types),
        )
    element_type: ElementType = types[0]  # type: ignore[assignment]
    return element_type


def _scalars(definition: Definition, workloads: list[SuiteWorkload]) -> dict[str, bool | int | float]:
    """One value a scalar, that of the first workload; files of arrays are not read."""
    found: dict[str, bool | int | float] = {}
    for workload in workloads:
        for name, spec in workload.inputs.items():
            if name not in definition.inputs:
                raise InvalidInput(f"inputs.{name}: {definition.name} has no such input", field=f"inputs.{name}")
            if spec.type == "safetensors":
                raise InvalidInput(
                    f"inputs.{name}: arrays from files are not taken, only random ones and scalars",
                    field=f"inputs.{name}",
                    value=spec.path,
                    limit="random, scalar",
                )
            if spec.type == "scalar":
                if spec.value is None:
                    raise InvalidInput(f"inputs.{name}: a scalar has a value", field=f"inputs.{name}.value")
                found.setdefault(name, spec.value)
    return found


def _check_reference(definition: Definition, path: Path | str) -> None:
    try:
        tree = ast.parse(definition.reference)
    except (SyntaxError, ValueError) as error:
        raise InvalidOption(f"{path}: reference: {error}", field="reference") from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        raise InvalidOption(f"{path}: reference: there is no function `run`", field="reference", limit="def run(...)")


def _check_shapes(definition: Definition, path: Path | str) -> None:
    if shared := set(definition.inputs) & set(definition.outputs):
        raise InvalidOption(f"{path}: outputs: {', '.join(sorted(shared))} is an input too", field="outputs")
    for name, spec in {**definition.inputs, **definition.outputs}.items():
        for axis in spec.shape or ():
            if axis not in definition.axes:
                known = ", ".join(definition.axes)
                raise InvalidOption(
                    f"{path}: {name}.shape: no axis {axis} ({known})", field=f"{name}.shape", limit=known
                )


def read_workload(line: str, where: str) -> SuiteWorkload:
    """Of a line, or of a trace that has one. Raises InvalidOption."""
    try:
        parsed: Any = json.loads(line)
        if isinstance(parsed, dict) and isinstance(parsed.get("workload"), dict):
            parsed = parsed["workload"]
        return SuiteWorkload.model_validate(parsed)
    except ValidationError as error:
        raise _invalid(where, error) from error
    except json.JSONDecodeError as error:
        raise InvalidOption(f"{where}: {error}", field="workloads") from error


def _axis_name(original: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", original.lower()).strip("_")[:28] or "x"
    return plain if plain[0].isalpha() else f"x_{plain}"


def _with_names(text: str, names: Mapping[str, str]) -> str:
    """With our spelling of axes."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)


def _invalid(where: Path | str, error: ValidationError) -> InvalidOption:
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return InvalidOption(f"{where}: {field}: {first['msg']}", field=field, value=first.get("input"))
