"""Programs that stand in for others: what those hold of the matrix in their text are arguments here.

A text that is the same for every matrix is compiled once and found again, where one with numbers of the matrix in it
costs a compilation each time. `search="instant"` hands them out. Searches do not propose them: how much slower they are
was not measured on a GPU yet, and behind an instant kernel the program itself is among the first that are measured.
"""

from collections.abc import Iterator
from itertools import product

from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.families.estimates.cost import Prospect
from sparsesmith.families.proposal import FamilyProspect
from sparsesmith.families.spmv.row_bins_prospects import MOST_IN_FLIGHT
from sparsesmith.formats.format import ParameterValue, numbers
from sparsesmith.formats.row_bins import MAX_SIZED_BINS, WARP, place_bins
from sparsesmith_proto.message import ElementType

BLOCK = 128
LEAST_BATCH = 4
"""Smaller batches would save little and be texts of their own."""
COMMON_INDICES = ("i32", "u16")
COMMON_TYPES: tuple[ElementType, ...] = ("float32", "float64")


def stand_in(entry: FamilyProspect) -> FamilyProspect:
    """What may be handed out at once in the place of a prospect, with its estimate; itself where its text holds nothing
    of the matrix, or nothing stands in for it."""
    match entry.family.name:
        case "row_bins":
            parameters = _row_bins(entry.parameters)
            name = "row_bins_any"
        case "ell_fixed":
            parameters = _ell_fixed(entry.parameters)
            name = "ell_any"
        case _:
            return entry
    if parameters is None:
        return entry
    return FamilyProspect(FAMILIES[name], Prospect(entry.estimated_us, parameters))


def common_texts() -> Iterator[tuple[str, ElementType]]:
    """Programs of the stand-ins that are asked for most, and their types: worth compiling before anybody asks."""
    read: dict[str, ParameterValue] = {"load": "ldg", "registers": "free", "dependency": "programmatic"}
    for element_type, batch in product(COMMON_TYPES, (4, 8, 16, 32)):
        yield FAMILIES["ell_any"].render({"batch": batch, "block": BLOCK, **read}, element_type), element_type
    for element_type, batch in product(COMMON_TYPES, (4, 8, 16)):
        for index, (lanes, block) in product(COMMON_INDICES, ((WARP, BLOCK), (512, 512))):
            cut: dict[str, ParameterValue] = {
                "widths": "1",
                "steps": 1,
                "max_lanes": lanes,
                "batch": batch,
                "block": block,
                "index": index,
            }
            yield FAMILIES["row_bins_any"].render({**cut, **read}, element_type), element_type


def _row_bins(literal: dict[str, ParameterValue]) -> dict[str, ParameterValue] | None:
    """None: it has more bins than can be arguments."""
    widths, ends = numbers(str(literal["widths"])), numbers(str(literal["warps"]))
    steps, max_lanes = int(literal["steps"]), int(literal["max_lanes"])
    if len(widths) > MAX_SIZED_BINS:
        return None
    bins = place_bins(widths, ends, steps, max_lanes)
    is_wide = bins[0].lanes > WARP
    return {
        "widths": literal["widths"],
        "steps": steps,
        "max_lanes": max_lanes if is_wide else WARP,
        "batch": _batch(max(bin_.steps for bin_ in bins)),
        "block": literal["block"] if is_wide else BLOCK,
        **{name: literal[name] for name in ("load", "registers", "index", "dependency")},
    }


def _ell_fixed(literal: dict[str, ParameterValue]) -> dict[str, ParameterValue]:
    batch = _batch(int(literal["width"]), most=2 * MOST_IN_FLIGHT)
    return {"batch": batch, "block": BLOCK, **{name: literal[name] for name in ("load", "registers", "dependency")}}


def _batch(slots: int, most: int = MOST_IN_FLIGHT) -> int:
    """The least power of two that holds them."""
    return min(most, max(LEAST_BATCH, 1 << (slots - 1).bit_length()))
