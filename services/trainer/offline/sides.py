"""Which matrices are trained on, and where their patterns lie."""

import csv
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal, get_args

import scipy.sparse

from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy

Side = Literal["train", "validation"]
SIDES: tuple[Side, ...] = get_args(Side)
VALIDATION_SHARE = 0.25


def sides_in(path: Path | None) -> dict[str, str]:
    """Matrix -> side, of a CSV with columns name, split. None: nothing is named."""
    if path is None:
        return {}
    with path.open(encoding="utf-8", newline="") as rows:
        return {row["name"]: row["split"] for row in csv.DictReader(rows)}


def side_of(name: str, sides: Mapping[str, str]) -> str:
    """`train`, `validation` or what the split says; a quarter of what it does not name is validation."""
    share = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32
    return sides.get(name, "validation" if share < VALIDATION_SHARE else "train")


class Patterns:
    """Of .packs and folders of .npz files, by name or digest."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._named = {name: pattern for path in paths if path.is_file() for name, pattern in read_pack(path)}
        self._files = {file.stem: file for path in paths if path.is_dir() for file in path.glob("*.npz")}

    @property
    def names(self) -> list[str]:
        """Of all, in order."""
        return sorted({*self._named, *self._files})

    def __contains__(self, name: str) -> bool:
        """By name alone."""
        return name in self._named or name in self._files

    def find(self, name: str) -> Pattern | None:
        """By name or digest; None where it is not there."""
        if name not in self._named and name in self._files:
            self._named[name] = pattern_from_scipy(scipy.sparse.load_npz(self._files[name]))
        return self._named.get(name) or self._by_digest.get(name)

    def named(self, name: str) -> Pattern:
        """Raises SystemExit where it is not there."""
        found = self.find(name)
        if found is None:
            raise SystemExit(f"no pattern {name} in {', '.join(map(str, self._paths))}")
        return found

    @cached_property
    def _by_digest(self) -> dict[str, Pattern]:
        return {pattern.digest: pattern for pattern in map(self.named, {*self._named, *self._files})}
