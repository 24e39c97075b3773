"""A problem of another suite becomes a folder: read, run a few times, looked at, written.

Nothing of it runs in this process (`client`).
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np

from services.evaluator.device import wrong_entries
from services.evaluator.references.client import source_of
from services.evaluator.references.flags import flags_of
from services.evaluator.references.matching import Solved, solved_by
from sparsesmith.errors import InvalidInput, InvalidOption
from sparsesmith.operations.catalogue import ON_MATRICES, is_task_name, our_tasks
from sparsesmith.operations.imported.bound import right_of
from sparsesmith.operations.imported.card import (
    MAX_OPERANDS,
    MOST_ALLOWANCE,
    Card,
    DrawKind,
    GivenType,
    ImportedOperand,
)
from sparsesmith.operations.imported.flashinfer import Definition, card_of_definition, read_definition, read_workloads
from sparsesmith.operations.imported.folder import free_folder, write_reference, write_task
from sparsesmith.operations.imported.references import Answer, Arrays, References
from sparsesmith.operations.operand import Sizes
from sparsesmith_proto.message import ElementType

SEEDS = (1, 2, 3)
"""Each kind of inputs is drawn so often to see that the reference is defined for it."""
DEFINED_ERROR = 1e-3
"""A kind of inputs is left out where the reference's own type loses more than this share of its results."""
ALLOWED_BEYOND = 1.5
"""Times the distance of torch's other result on the inputs of the import: on others it lies further off."""
RESERVED = frozenset({"num_sms", "int", "float", "double", "half", "short", "char", "const", "void", "this", "in"})


class DescribesReferences(References, Protocol):
    """Those that can be asked about one that has no card yet."""

    def describe(self, source: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]: ...

    def otherwise(self, folder: Path, card: Card, sizes: Sizes, inputs: Arrays) -> Arrays: ...


@dataclass(frozen=True)
class ImportOptions:
    """What a user may say."""

    name: str = ""
    """Of the task; empty: made of the file's."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers of a KernelBench module to set anew."""
    program: str = ""
    """Text of a naive program; empty: one of ours where there is one."""


def import_task(path: Path, into: Path, options: ImportOptions, references: DescribesReferences) -> Card:
    """Writes the folder. Raises InvalidInput and InvalidOption naming what is wrong, and Unavailable."""
    if options.name and not is_task_name(options.name):
        raise InvalidOption(
            f"name: {options.name}: lower-case letters, digits and _, 32 at most", field="name", value=options.name
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path}: {error}", field="path", value=path) from error
    match path.suffix:
        case ".py":
            card, reference = _of_kernelbench(path, text, options, references), text
            definition = None
        case ".json":
            definition = read_definition(text, path)
            card = card_of_definition(definition, read_workloads(path, definition), options.name or path.stem)
            reference = definition.reference
        case other:
            raise InvalidOption(f"{path}: .py (KernelBench) or .json (flashinfer-bench)", field="path", value=other)
    _check_free(card, options)
    folder = free_folder(into, card.name)
    try:
        return _written(folder, card, reference, definition, options, references)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _check_free(card: Card, options: ImportOptions) -> None:
    """Raises InvalidOption for a name that another task has, and for a program that is for another one."""
    ours = [task.name for task in our_tasks()]
    if card.name in (*ours, *(each.name for each in ON_MATRICES)):
        raise InvalidOption(f"name: there is an operation {card.name}", field="name", value=card.name)
    if options.program and f"//@ task {card.name}\n" not in options.program:
        raise InvalidOption(
            f"program: `//@ task {card.name}` is needed", field="program", limit=f"//@ task {card.name}"
        )


def _written(
    folder: Path,
    card: Card,
    reference: str,
    definition: Definition | None,
    options: ImportOptions,
    references: DescribesReferences,
) -> Card:
    write_reference(folder, reference, "" if definition is None else definition.text)
    if definition is not None:
        described = references.describe(source_of(card, reference), {**card.fixed, **card.trial})
        card = card.model_copy(update={"flops": described["flops"]})
    tried = _Trial(folder, card, references)
    tried.check_repeated()
    card = card.model_copy(update={"kinds": tuple(tried.defined_kinds())})
    card = card.model_copy(update={"allowance": tried.allowance()})
    card = card.model_copy(update={"flags": (*card.flags, *tried.flags())})
    programs = {"naive": options.program} if options.program else {}
    if not programs and not card.axes and (solved := solved_by(card, tried.judged)) is not None:
        card, programs = _renamed(card, solved), dict(solved.programs)
    write_task(folder, card, programs)
    return card.model_copy(update={"programs": tuple(programs)})


class _Trial:
    """What its own reference says of a card."""

    def __init__(self, folder: Path, card: Card, references: DescribesReferences) -> None:
        self._folder = folder
        self._card = card
        self._references = references
        self._sizes = {**card.fixed, **card.trial}
        self.judged: list[tuple[Arrays, Answer]] = []
        """Inputs of the kinds that it is defined for, and what is right of them."""

    def check_repeated(self) -> None:
        """Raises InvalidInput where equal seeds give other inputs, or equal inputs other results."""
        first, again = (self._drawn("given", SEEDS[0]) for _ in range(2))
        for name, array in first.items():
            if not np.array_equal(array, again[name], equal_nan=np.issubdtype(array.dtype, np.floating)):
                raise self._refused(f"draws other inputs ({name}) from the same seed: it is not deterministic")
        one, two = (self._answered(first) for _ in range(2))
        for name, result in one.results.items():
            if not np.array_equal(result.own, two.results[name].own, equal_nan=True):
                raise self._refused(f"gives other results ({name}) for the same inputs: it is not deterministic")

    def defined_kinds(self) -> Iterator[DrawKind]:
        """Raises InvalidInput where it is not defined for its own inputs."""
        for kind in get_args(DrawKind):
            try:
                judged = [self._judged(kind, seed) for seed in SEEDS]
            except InvalidInput:
                if kind == "given":
                    raise
                continue
            if kind == "given" or all(_is_defined(answer) for _, answer in judged):
                self.judged += judged
                yield kind

    def allowance(self) -> float:
        """What the bound must be widened by for another of torch's own ways to the same result, and half as much
        again; 1 where that is within it."""
        return min(MOST_ALLOWANCE, max(1.0, ALLOWED_BEYOND * self._furthest))

    def flags(self) -> Iterator[str]:
        """Also where the other way's result is so far off that no bound of use takes it."""
        if ALLOWED_BEYOND * self._furthest > MOST_ALLOWANCE:
            yield "bound: what torch finds by other routines is refused"
        (_, first), (_, second) = self.judged[:2]
        for operand in self._card.operands:
            if operand.role == "output":
                pair = first.results[operand.name].wide, second.results[operand.name].wide
                yield from flags_of(operand.name, *pair)

    @cached_property
    def _furthest(self) -> float:
        """Of the other way's results the largest distance from what is right, in bounds; 0 where all are within."""
        return max(
            distance_of(self._card, answer, self._references.otherwise(self._folder, self._card, self._sizes, inputs))
            for inputs, answer in self.judged
        )

    def _judged(self, kind: DrawKind, seed: int) -> tuple[Arrays, Answer]:
        drawn = self._drawn(kind, seed)
        return drawn, self._answered(drawn)

    def _drawn(self, kind: DrawKind, seed: int) -> Arrays:
        return self._references.draw(self._folder, self._card, kind, self._sizes, seed)

    def _answered(self, inputs: Arrays) -> Answer:
        return self._references.answer(self._folder, self._card, self._sizes, inputs)

    def _refused(self, reason: str) -> InvalidInput:
        return InvalidInput(f"{self._card.name}: the reference {reason}", field="reference", value=self._card.name)


def _is_defined(answer: Answer) -> bool:
    """Finite, and in its own type about what it is in float64."""
    for result in answer.results.values():
        if not (np.isfinite(result.wide).all() and np.isfinite(result.own).all()):
            return False
        error, size = np.abs(result.own - result.wide), np.abs(result.wide)
        if np.sqrt(np.mean(error**2)) > DEFINED_ERROR * np.sqrt(np.mean(size**2)):
            return False
    return True


def is_right(card: Card, answer: Answer, found: Arrays) -> bool:
    """Whether every output is within its bound."""
    return distance_of(card, answer, found) == 0


def distance_of(card: Card, answer: Answer, found: Arrays) -> float:
    """The largest distance of an entry from what is right, in bounds; 0 where all are within, infinite for what is not
    finite and should be."""
    most = 0.0
    for each in card.operands:
        if each.role == "output":
            right = right_of(card, each, answer)
            if bool(wrong_entries(found[each.name], right.reference, right.bound).any()):
                with np.errstate(all="ignore"):
                    off = np.abs(found[each.name] - right.reference) / right.bound
                most = max(most, float(np.where(np.isfinite(off), off, np.inf).max()))
    return most


def _of_kernelbench(path: Path, text: str, options: ImportOptions, references: DescribesReferences) -> Card:
    """Its shapes are those of the module's own inputs."""
    source = {"origin": "kernelbench", "text": text, "constants": dict(options.constants)}
    described = references.describe(source, {})
    given = [*described["inputs"], *({"original": "", **each} for each in described["outputs"])]
    if len(given) > MAX_OPERANDS:
        raise InvalidInput(
            f"{path}: {len(given)} inputs, parameters and outputs",
            field="reference",
            value=len(given),
            limit=MAX_OPERANDS,
        )
    names, fixed, operands = _Names(), dict[str, int](), []
    for place, each in enumerate(given):
        is_output = place >= len(described["inputs"])
        name = names.free(each["original"] or "y")
        axes = [f"{name[:28]}_{dimension}" for dimension in range(len(each["shape"]))]
        fixed |= dict(zip(axes, each["shape"], strict=True))
        operands.append(
            ImportedOperand(
                name=name,
                role="output" if is_output else "input",
                axes=tuple(axes),
                given=_known_type(path, each["given"], name),
                original=each["original"],
                is_parameter=each.get("is_parameter", False),
            )
        )
    _check_sizes(path, fixed)
    return Card(
        name=options.name or task_name(path.stem),
        origin="kernelbench",
        formula=f"as KernelBench's {path.stem}",
        element_type=element_type_of(operands, path),
        fixed=fixed,
        operands=tuple(operands),
        constants=dict(options.constants),
        flops=described["flops"],
    )


def task_name(stem: str) -> str:
    """`1_Square_matrix_multiplication_` as `kb_1_square_matrix_multiplicatio`: at most 32 characters."""
    return re.sub(r"[^a-z0-9]+", "_", f"kb_{stem.lower()}")[:32].rstrip("_")


def element_type_of(operands: Sequence[ImportedOperand], path: Path) -> ElementType:
    """The one floating type of all. Raises InvalidInput where there are several."""
    types = sorted({each.given for each in operands if each.is_floating}) or ["float32"]
    if len(types) > 1:
        raise InvalidInput(
            f"{path}: its arrays are {' and '.join(types)}: one type is taken", field="dtype", value=types
        )
    element_type: ElementType = types[0]  # type: ignore[assignment]  # All floating ones are element types.
    return element_type


def _known_type(path: Path, given: str, name: str) -> GivenType:
    if given not in get_args(GivenType):
        known = ", ".join(get_args(GivenType))
        raise InvalidInput(f"{path}: {name} is {given}, taken: {known}", field="dtype", value=given, limit=known)
    return given  # type: ignore[return-value]


def _check_sizes(path: Path, fixed: Mapping[str, int]) -> None:
    for name, size in fixed.items():
        if not 1 <= size < 2**31:
            raise InvalidInput(f"{path}: {name} is {size}: 1 to {2**31 - 1}", field=name, value=size)


class _Names:
    """Lower-case names that differ, of whatever the suite calls things."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)

    def free(self, original: str) -> str:
        """Short enough that sizes can be told by a number behind it."""
        plain = re.sub(r"[^a-z0-9]+", "_", original.lower()).strip("_")[:24] or "x"
        plain = plain if plain[0].isalpha() else f"x_{plain}"
        name = next(each for each in (plain, *(f"{plain}_{n}" for n in range(2, 100))) if each not in self._taken)
        self._taken.add(name)
        return name


def _renamed(card: Card, solved: Solved) -> Card:
    """With the names of the task of ours that it is."""
    operands = tuple(
        each.model_copy(
            update={
                "name": solved.operands[each.name],
                "axes": solved.axes[each.name],
                "shape": tuple(card.fixed[axis] for axis in each.axes),
            }
        )
        for each in card.operands
    )
    return card.model_copy(update={"operands": operands, "fixed": dict(solved.sizes), "solves": solved.task})
