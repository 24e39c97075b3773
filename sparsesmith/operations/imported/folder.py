"""The folder that holds imported tasks: one folder each, named as the task.

NAME/task.json       what is known of it (`card.Card`)
NAME/reference.py    what is right: somebody's code
NAME/definition.json a flashinfer-bench Definition as it came
NAME/programs/*.cu.in first programs, `T` for the element type
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from sparsesmith.errors import InvalidOption
from sparsesmith.operations.imported.card import Card
from sparsesmith.operations.imported.task import ImportedTask, imported_task

VARIABLE = "SPARSESMITH_IMPORTED_TASKS"
"""Environment of generator, evaluators and the command line: the folder of folders. Empty: nothing is imported."""

CARD = "task.json"
REFERENCE = "reference.py"
DEFINITION = "definition.json"
PROGRAMS = "programs"
MAX_TEXT_CHARACTERS = 20_000
"""Of a reference, in what prompts and people are told of a task."""


def imported_folder() -> Path | None:
    """None: nothing is imported."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def is_imported(name: str) -> bool:
    """Whether there is a folder of this name, which is a task's."""
    folder = imported_folder()
    return folder is not None and (folder / name / CARD).is_file()


def imported_tasks() -> Iterator[ImportedTask]:
    """By name. Raises InvalidOption naming the folder and the field of the first that cannot be read."""
    folder = imported_folder()
    if folder is None:
        return
    for path in sorted(folder.glob(f"*/{CARD}")):
        yield read_task(path.parent)


def free_folder(into: Path, name: str) -> Path:
    """Made for a task. Raises InvalidOption where there is one."""
    folder = into / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise InvalidOption(
            f"{folder} is there already: take it away, or give the task another name", field="name", value=name
        ) from error
    return folder


def write_task(folder: Path, card: Card, programs: Mapping[str, str]) -> None:
    """Beside the reference; the card last, for what has none is no task."""
    for name, text in programs.items():
        (folder / PROGRAMS).mkdir(exist_ok=True)
        (folder / PROGRAMS / f"{name}.cu.in").write_text(text, encoding="utf-8")
    listed = card.model_copy(update={"programs": tuple(programs)})
    (folder / CARD).write_text(listed.model_dump_json(indent=2, exclude_defaults=True) + "\n", encoding="utf-8")


def write_reference(folder: Path, reference: str, definition: str = "") -> None:
    """`definition`: as it came, where there is one."""
    (folder / REFERENCE).write_text(reference, encoding="utf-8")
    if definition:
        (folder / DEFINITION).write_text(definition, encoding="utf-8")


def read_task(folder: Path) -> ImportedTask:
    """Raises InvalidOption."""
    card = read_card(folder)
    try:
        programs = {name: (folder / PROGRAMS / f"{name}.cu.in").read_text(encoding="utf-8") for name in card.programs}
        reference = (folder / REFERENCE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"imported task {folder}: {error}", field="task", value=folder) from error
    text = f"From {card.origin}. What is right, by its own reference:\n{reference[:MAX_TEXT_CHARACTERS]}"
    return imported_task(card, folder, programs, text)


def read_card(folder: Path) -> Card:
    """Raises InvalidOption."""
    path = folder / CARD
    try:
        card = Card.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidOption(f"{path}: {error.strerror}", field="task", value=path) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "task.json"
        raise InvalidOption(f"{path}: {field}: {first['msg']}", field=field, value=path) from error
    if card.name != folder.name:
        raise InvalidOption(
            f"{path}: name is {card.name}, the folder's is {folder.name}", field="name", value=card.name
        )
    return card
