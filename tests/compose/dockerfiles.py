"""What a Dockerfile copies."""

import shutil
from pathlib import Path

from tests.compose.compose_files import ROOT


def dockerfile(service: str) -> Path:
    return ROOT / "services" / service / "Dockerfile"


def copies(service: str) -> list[tuple[str, str]]:
    """(source, target) of every COPY, relative to the repository and to the image's working folder."""
    found = []
    for line in dockerfile(service).read_text().splitlines():
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            found += [(source, target) for source in sources]
    return found


def copy_tree(service: str, folder: Path) -> None:
    """The image's working folder, but for the models."""
    for source, target in copies(service):
        if source == "models/":
            continue
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / target)
