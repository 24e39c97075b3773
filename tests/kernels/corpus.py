"""The kernel programs of this folder, with what their first lines expect."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from sparsesmith.operations import operations
from sparsesmith.operations.texts import with_element_type
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType, Operation

FOLDER = Path(__file__).parent
NUM_DENSE_COLS = 8
"""Of every product with several dense columns: `cells` is written for that many and no others."""
_LINE = re.compile(r"// (expect|on a GPU|workload|words|twin): (.*)")


@dataclass(frozen=True)
class CorpusProgram:
    path: Path
    text: str
    expected: tuple[str, ...]
    """Outcomes without a GPU: one, or two where the compiler's limits decide."""
    expected_on_gpu: tuple[str, ...]
    """On a GPU, which has no memory checker: several where leftovers of the hardware decide."""
    operation: Operation
    element_type: ElementType
    words: str
    """Of the message without a GPU."""
    twin: str
    """Name of the good program that does the same work honestly; empty where there is none."""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def num_dense_cols(self) -> int:
        return num_dense_cols_of(self.operation)


def num_dense_cols_of(operation: Operation) -> int:
    """That programs of this folder are graded with."""
    return NUM_DENSE_COLS if operation == "spmm" else 1


def read_program(path: Path) -> CorpusProgram:
    text = path.read_text()
    given: dict[str, str] = {}
    for line in text.split("\n"):
        found = _LINE.fullmatch(line)
        if not found:
            break
        given[found[1]] = found[2]
    operation, element_type = given["workload"].split(" ")
    assert operation in operations()
    assert element_type in get_args(ElementType)
    return CorpusProgram(
        path,
        text,
        tuple(given["expect"].split("|")),
        tuple(given.get("on a GPU", given["expect"]).split("|")),
        operation,
        cast(ElementType, element_type),
        given.get("words", ""),
        given.get("twin", ""),
    )


def corpus(*folders: str) -> list[CorpusProgram]:
    """All programs of these folders, of all three without one."""
    chosen = folders or ("good", "broken", "cheating")
    return [read_program(path) for folder in chosen for path in sorted((FOLDER / folder).glob("*.cu"))]


def task_corpus() -> list[CorpusProgram]:
    """Broken and cheating programs for tasks, by task: each is graded at its task's trial axes."""
    return sorted(corpus("tasks/broken", "tasks/cheating"), key=lambda program: program.operation)


def task_workload(operation: Operation, element_type: ElementType = "float32") -> Workload:
    """Of a task, at its trial axes."""
    return Workload(operation=operation, element_type=element_type, axes=dict(operations()[operation].trial))


def naive_program(operation: Operation, element_type: ElementType = "float32") -> str:
    """Of a task: a program that passes, to be graded after those that do not."""
    task = operations()[operation]
    return with_element_type(task.programs[task.naive], element_type)


def good_program(operation: Operation, element_type: ElementType) -> CorpusProgram:
    """A program that passes, to be graded after one that does not."""
    fitting = [each for each in corpus("good") if (each.operation, each.element_type) == (operation, element_type)]
    plain = (each for each in fitting if each.path.stem.startswith("csr_") and "#include" not in each.text)
    return next(plain, fitting[0])
