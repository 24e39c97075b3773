"""What `pip` is while a Dockerfile is replayed: it downloads nothing and refuses what pip would refuse.

A local project's metadata are made for real, by the build backend of its pyproject.toml, in the folder as it is.
Each `pip install` adds one line to $REPLAY_LOG: the packages asked for, as JSON.
"""

import argparse
import importlib
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement

LOG = Path(os.environ["REPLAY_LOG"])


def install(arguments: argparse.Namespace) -> list[str]:
    """The packages asked for."""
    found = list(arguments.packages)
    for file in arguments.requirement:
        found += [line for line in Path(file).read_text().splitlines() if line]
    found += arguments.editable
    asked = [line for text in found for line in _packages(text, arguments)]
    return [str(Requirement(line)) for line in asked]


def _packages(text: str, arguments: argparse.Namespace) -> Iterator[str]:
    local = re.fullmatch(r"\.(?:\[([\w,-]+)\])?", text)
    if local is None:
        yield text
        return
    metadata = local_metadata(with_isolation=not arguments.no_build_isolation)
    extras = set((local[1] or "").split(",")) - {""}
    if unknown := extras - set(metadata.provides_extra or ()):
        sys.exit(f"no extra {sorted(unknown)}")
    if not arguments.no_deps:
        for requirement in metadata.requires_dist or ():
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                yield str(requirement)


def local_metadata(*, with_isolation: bool) -> Metadata:
    """Of the project in the working folder."""
    system = tomllib.loads(Path("pyproject.toml").read_text())["build-system"]
    if not with_isolation and (missing := set(system["requires"]) - set(_asked_for_before())):
        sys.exit(f"--no-build-isolation, and not installed: {sorted(missing)}")
    backend = importlib.import_module(system["build-backend"])
    with tempfile.TemporaryDirectory() as folder:
        name = backend.prepare_metadata_for_build_editable(folder)
        return Metadata.from_email((Path(folder) / name / "METADATA").read_bytes(), validate=False)


def _asked_for_before() -> Iterator[str]:
    lines = LOG.read_text().splitlines() if LOG.exists() else []
    return (requirement for line in lines for requirement in json.loads(line))


def main() -> None:
    parser = argparse.ArgumentParser(prog="pip")
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install")
    installing.add_argument("packages", nargs="*")
    installing.add_argument("--requirement", "-r", action="append", default=[])
    installing.add_argument("--editable", "-e", action="append", default=[])
    installing.add_argument("--extra-index-url", action="append", default=[])
    installing.add_argument("--no-deps", action="store_true")
    installing.add_argument("--no-build-isolation", action="store_true")
    removing = commands.add_parser("uninstall")
    removing.add_argument("--yes", action="store_true", required=True)
    removing.add_argument("packages", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "install":
        asked = install(arguments)
        with LOG.open("a") as log:
            log.write(json.dumps(asked) + "\n")


if __name__ == "__main__":
    main()
