"""Family programs with parameters between and beyond those that the family offers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES
from sparsesmith.families.family import Family
from sparsesmith.families.text.program import Choice
from sparsesmith.formats.format import ParameterValue, numbers
from sparsesmith.formats.row_bins import WARP, count_lengths, cut_bins, lanes_of
from sparsesmith.mutation.child import Child
from sparsesmith.mutation.subject import Subject

BLOCKS = (96, 160, 192, 224, 288, 320, 384, 448, 576, 640, 768)
"""Whole warps, no powers of two."""
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "block": BLOCKS,
    "unroll": (3, 5, 6, 7, 10, 12, 16, 20, 24),
    "lanes": (3, 5, 6, 7, 10, 12, 20, 24),
    "blocks_per_sm": (1, 3, 5, 6, 12, 24, 32),
}
"""Values of each parameter that say nothing of the stored format."""

NEEDS_POWERS: Mapping[str, frozenset[str]] = {
    "lanes": frozenset({"spmv"}),
    "unroll": frozenset({"spmm_rows_shuffle", "spmm_hubs"}),
}
"""Operations and families whose text relies on powers of two in a parameter: shuffles between lanes, shares of a
group, vectors of indices that are read at once."""


def off_grid(subject: Subject) -> Iterator[Child]:
    """One number of the family's parameters changed to one that it does not offer."""
    instance = subject.instance
    if instance is None or instance.family not in FAMILIES:
        return
    family = FAMILIES[instance.family]
    for name, values in NUMBERS.items():
        if name not in family.parameters or {family.name, family.operation} & NEEDS_POWERS.get(name, frozenset()):
            continue
        for number in values:
            if number not in getattr(family.parameters[name], "values", ()):
                yield from _with(subject, family, {name: number}, f"{name} {number}")


def bins(subject: Subject) -> Iterator[Child]:
    """Rows gathered by length into other bins: one cut less, one more, one elsewhere."""
    instance = subject.instance
    if instance is None or "widths" not in instance.parameters or instance.family != "row_bins":
        return
    family, counted = FAMILIES["row_bins"], count_lengths(subject.pattern.row_lengths)
    widths = numbers(str(instance.parameters["widths"]))
    steps, max_lanes = int(instance.parameters["steps"]), int(instance.parameters["max_lanes"])
    for change, limits in _other_cuts(widths):
        cut = cut_bins(counted, limits, steps, max_lanes)
        changed: dict[str, ParameterValue] = {
            "widths": ",".join(str(bin_.width) for bin_ in reversed(cut)),
            "warps": ",".join(str(bin_.past_warp) for bin_ in cut),
        }
        yield from _with(subject, family, changed, change)


def _other_cuts(widths: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for place, width in enumerate(widths):
        below = widths[place - 1] if place else 0
        if place < len(widths) - 1:
            yield "a cut less", (*widths[:place], *widths[place + 1 :])
            for other in (width - 1, width + 1):
                if below < other < widths[place + 1]:
                    yield "a cut moved", (*widths[:place], other, *widths[place + 1 :])
        if width - below > 1:
            yield "a cut more", (*widths[:place], (below + width) // 2, *widths[place:])


def _with(subject: Subject, family: Family, changed: Mapping[str, ParameterValue], change: str) -> Iterator[Child]:
    """Nothing where the family's own rules speak against it."""
    instance = subject.instance
    assert instance is not None
    parameters = {**instance.parameters, **changed}
    choice = Choice(parameters, subject.element_type, subject.num_dense_cols, subject.operation, family.format)
    try:
        if not family.allows(choice) or not _shares_blocks_evenly(choice):
            return
        text = family.write(choice)
    except SparsesmithError:
        return
    yield Child(change, text, replace(instance, parameters=parameters, program=text, open_program=None))


def _shares_blocks_evenly(choice: Choice) -> bool:
    """Whether the threads of a row, or its groups, fill a block, and a block is whole warps."""
    block = choice.integer("block") if "block" in choice.values else WARP
    lanes = choice.integer("lanes") if "lanes" in choice.values else 1
    if "splits" in choice.values:
        lanes *= choice.integer("splits")
    if "max_lanes" in choice.values:
        lanes = lanes_of(numbers(choice.word("widths"))[-1], choice.integer("steps"), choice.integer("max_lanes"))
    return block % WARP == 0 and block % lanes == 0
