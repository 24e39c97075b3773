"""Text files, compressed where their name says so."""

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal


@contextmanager
def open_text(path: Path, mode: Literal["r", "w"]) -> Iterator[IO[str]]:
    """A UTF-8 text file, through xz where the name ends in .xz."""
    if path.suffix == ".xz":
        with lzma.open(path, "rt" if mode == "r" else "wt", encoding="utf-8") as packed:
            yield packed
    else:
        with path.open(mode, encoding="utf-8") as plain:
            yield plain
