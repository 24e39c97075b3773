"""The kernel programs of this folder, with what their first lines expect."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sparsesmith_proto.message import ElementType, Operation

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class CorpusProgram:
    path: Path
    text: str
    expected: tuple[str, ...]
    """Outcomes: one, or several where the device decides."""
    operation: Operation
    element_type: ElementType

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def read_program(path: Path) -> CorpusProgram:
    text = path.read_text()
    expect, workload, _ = text.split("\n", 2)
    operation, element_type = workload.removeprefix("// workload: ").split(" ")
    assert operation in get_args(Operation)
    assert element_type in get_args(ElementType)
    outcomes = expect.removeprefix("// expect: ").split("|")
    return CorpusProgram(path, text, tuple(outcomes), operation, element_type)  # type: ignore[arg-type]


def corpus(*folders: str) -> list[CorpusProgram]:
    """All programs of these folders, of all three without one."""
    chosen = folders or ("good", "broken", "cheating")
    return [read_program(path) for folder in chosen for path in sorted((FOLDER / folder).glob("*.cu"))]
