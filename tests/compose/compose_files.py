"""The compose files as Docker Compose reads them, as far as these tests need."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
GPU_FILE = ROOT / "docker-compose.yml"
CPU_FILE = ROOT / "docker-compose.cpu.yml"
GVISOR_FILE = ROOT / "docker-compose.gvisor.yml"
OWN_SERVICES = ("generator", "evaluator", "trainer")

Document = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """Knows the tags of the compose specification for merging."""


class _Replacing:
    """What stands in the place of the other file's value."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _replacing(loader: _Loader, node: yaml.Node) -> _Replacing:
    match node:
        case yaml.MappingNode():
            return _Replacing(loader.construct_mapping(node, deep=True))
        case _:
            return _Replacing(None)


_Loader.add_constructor("!reset", _replacing)
_Loader.add_constructor("!override", _replacing)


def document(path: Path) -> Document:
    """One file, with variables at their defaults and the tags resolved as if it stood alone."""
    plain: Document = _plain(_load(path))
    return plain


def cpu_document() -> Document:
    """Both files, merged."""
    merged: Document = _plain(_merged(_load(GPU_FILE), _load(CPU_FILE)))
    return merged


def gvisor_document(*files: Path) -> Document:
    """The files given, with gVisor's over them."""
    merged = _load(files[0])
    for file in (*files[1:], GVISOR_FILE):
        merged = _merged(merged, _load(file))
    plain: Document = _plain(merged)
    return plain


def _load(path: Path) -> Document:
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: os.environ.get(match[1], match[2]), path.read_text())
    loaded: Document = yaml.load(text, Loader=_Loader)
    return loaded


def _merged(base: Any, change: Any) -> Any:
    if isinstance(base, dict) and isinstance(change, dict):
        return {key: _merged(base.get(key), change.get(key, base.get(key))) for key in {**base, **change}}
    return change


def _plain(value: Any) -> Any:
    if isinstance(value, _Replacing):
        return value.value
    if isinstance(value, dict):
        plain = {key: _plain(item) for key, item in value.items()}
        return {key: item for key, item in plain.items() if item is not None or value[key] is None}
    return value
