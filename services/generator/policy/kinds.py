"""The kinds of policy there are: ours, and those that other packages register by entry point."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from services.generator.policy.kind import PolicyKind
from services.generator.policy.matrix_policy import MatrixPolicy
from services.generator.policy.text_policy import TextPolicy
from sparsesmith.errors import InvalidOption

ENTRY_POINTS = "sparsesmith.policy_kinds"
"""Each names a value that keeps the PolicyKind protocol; its own name chooses it."""

FITTING = "auto"
"""Chooses the first of ours that fits the folder."""

OURS: Mapping[str, PolicyKind] = {"matrix": MatrixPolicy(), "text": TextPolicy()}

_PARTS = ("weights_beside", "fits", "name_of", "prompt_writer")


def kind_of(folder: Path, name: str = FITTING) -> PolicyKind:
    """The kind of that name. Raises InvalidOption for one that nobody registered, that lacks a part or does not fit."""
    if name == FITTING:
        return next(kind for kind in OURS.values() if kind.fits(folder))
    kind = OURS.get(name) or _registered(name)
    if not kind.fits(folder):
        raise InvalidOption(f"{folder} holds no policy of kind {name}", field="policy_kind", value=name)
    return kind


def _registered(name: str) -> PolicyKind:
    """Only what is chosen is loaded."""
    found: Mapping[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        known = ", ".join([FITTING, *OURS, *found])
        raise InvalidOption(
            f"policy_kind {name!r} is unknown (known: {known})", field="policy_kind", value=name, limit=known
        )
    kind: PolicyKind = found[name].load()
    for part in _PARTS:
        if not hasattr(kind, part):
            raise InvalidOption(f"policy kind {name}: {part} is missing", field=part, value=name)
    return kind
