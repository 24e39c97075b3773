"""Which matrices are for training and which for validation: writes benchmarks/split.csv from a manifest.

    python -m benchmarks.matrices.split MANIFEST.csv [--out benchmarks/split.csv]

Siblings (one collection, one generator, one mesh at several sizes, parts of one system) stay on one side: they are
grouped by the stem of their names. Groups are dealt out by hash within each class and size, so that a matrix that is
added later moves no other one.
"""

import argparse
import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from benchmarks.origin import ROOT

SPLIT_FILE = ROOT / "benchmarks" / "split.csv"
VALIDATION_SHARE = {"core": 26 / 76, "full": 0.25}
"""Aim of each suite; core is what reports are made from."""

FIRST_CREDIT = 0.1
"""Matrices owed to validation before a stratum is dealt: it is dealt from the largest down, and the few matrices of
more than a million nonzeros must not all go to one side."""


@dataclass(frozen=True)
class Entry:
    """A matrix of the manifest."""

    name: str
    suite: str
    kind: str
    """Its class."""
    nnz: int

    @property
    def decade(self) -> int:
        return int(math.log10(self.nnz))


def read_manifest(path: Path) -> list[Entry]:
    """Rows of a manifest with columns name, suite, class, nnz."""
    with path.open(encoding="utf-8", newline="") as rows:
        return [Entry(row["name"], row["suite"], row["class"], int(row["nnz"])) for row in csv.DictReader(rows)]


def read_split(path: Path = SPLIT_FILE) -> dict[str, str]:
    """`train` or `validation` by matrix name."""
    with path.open(encoding="utf-8", newline="") as rows:
        return {row["name"]: row["split"] for row in csv.DictReader(rows)}


COLLECTIONS = (
    "dlmc_rn50_extmag",
    "dlmc_rn50_mag",
    "dlmc_rn50_vd",
    "dlmc_transformer",
    "ISPD98",
    "gcmc",
    "trilinos_teko",
    "trilinos_muelu",
    "trilinos_ml",
    "ginkgo",
    "lp_pilot",
    "lp_rococo",
    "lp_ship",
    "epfl_aig",
    "mesh_cotan",
    "q1q",
    "delaunay",
    "rgg",
    "truss",
    "src_c",
    "orsirr",
    "ani",
    "SZDM",
    "airfoil",
)
"""Beginnings of names whose matrices are alike in structure, whatever follows."""

_VARIANT = re.compile(
    r"(__\d+|_pat|_(re|im|real|imag)|_(Ybus|Jac)|_(train|valid|test)|_(adj|attr|edges)|_(directed|filtered|full))$",
    re.I,
)
_ORIGIN = re.compile(r"^(gnn|net)_")


def stem(name: str) -> str:
    """What siblings share: the collection, or the name without origin, numbers and variants."""
    for collection in COLLECTIONS:
        if name.lower().startswith(collection.lower()):
            return collection.lower()
    base = _ORIGIN.sub("", name)
    while (shorter := _VARIANT.sub("", base)) != base:
        base = shorter
    letters = re.sub(r"[\d.]+k?", "#", base.lower())
    return re.sub(r"(#|[_-])+$", "", letters) or letters


def split(entries: Sequence[Entry]) -> dict[str, str]:
    """`train` or `validation` by name. Deterministic; whole sibling groups; each suite near its share."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[stem(entry.name)].append(entry)
    chosen: set[str] = set()
    for stratum in _strata(groups).values():
        chosen |= _deal(stratum, groups)
    return {entry.name: "validation" if stem(entry.name) in chosen else "train" for entry in entries}


def _strata(groups: Mapping[str, Sequence[Entry]]) -> dict[tuple[str, str], list[str]]:
    """Groups by class and suite (core where any member is), ordered by size, then hash."""
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, members in groups.items():
        suite = "core" if any(member.suite == "core" for member in members) else "full"
        strata[suite, members[0].kind].append(name)
    for names in strata.values():
        names.sort(key=lambda name: (-max(member.decade for member in groups[name]), _hash(name)))
    return strata


def _deal(names: Iterable[str], groups: Mapping[str, Sequence[Entry]]) -> set[str]:
    """Walks groups in order of size and takes one whenever validation has fallen behind its share."""
    chosen: set[str] = set()
    owed = FIRST_CREDIT
    for name in names:
        members = groups[name]
        suite = "core" if any(member.suite == "core" for member in members) else "full"
        owed += VALIDATION_SHARE[suite] * len(members)
        if owed >= 0.5 * len(members) and owed > 0.5:
            chosen.add(name)
            owed -= len(members)
    return chosen


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--out", type=Path, default=SPLIT_FILE)
    options = parser.parse_args()
    entries = read_manifest(options.manifest)
    sides = split(entries)
    with options.out.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["name", "suite", "class", "nnz", "split"])
        rows.writerows([entry.name, entry.suite, entry.kind, entry.nnz, sides[entry.name]] for entry in entries)


if __name__ == "__main__":
    main()
