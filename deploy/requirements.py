"""Prints what a service needs beside this repository: the base, an extra with those it names, and what installs us.

    python requirements.py EXTRA

Reads ./pyproject.toml alone, so that an image's layer of packages outlives changes of code. Needs no package itself.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def requirements(project: dict[str, Any], extra: str) -> Iterator[str]:
    """As pip takes them, one a line."""
    table = project["project"]
    yield from project["build-system"]["requires"]
    yield from table["dependencies"]
    yield from _of_extra(table["name"], table["optional-dependencies"], extra)


def _of_extra(name: str, extras: dict[str, list[str]], extra: str) -> Iterator[str]:
    for line in extras[extra]:
        own = re.fullmatch(rf"{re.escape(name)}\[([\w.,\s-]+)\]", line)
        if own is None:
            yield line
        else:
            for named in own[1].split(","):
                yield from _of_extra(name, extras, named.strip())


if __name__ == "__main__":
    print("\n".join(requirements(tomllib.loads(Path("pyproject.toml").read_text()), sys.argv[1])))
