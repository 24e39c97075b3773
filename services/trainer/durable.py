"""Files that a kill at any moment leaves whole."""

import os
import shutil
from pathlib import Path


def write_durably(path: Path, content: memoryview | bytes) -> None:
    """Written beside, synced, renamed: a reader sees all of it or nothing, also after a power cut."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """What was written to a file, or which names a folder has, is on disk when this returns."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def removed(path: Path) -> None:
    """A file or a folder, if it is there. Of a folder its name goes first: nobody finds half of it."""
    if path.is_dir():
        leaving = path.with_name(path.name + ".leaving.part")
        shutil.rmtree(leaving, ignore_errors=True)
        path.rename(leaving)
        shutil.rmtree(leaving)
    else:
        path.unlink(missing_ok=True)


def moved(path: Path, target: Path) -> None:
    """A file or a folder to another name, in the place of what has it. A folder's name is free for a moment."""
    if target.is_dir():
        removed(target)
    path.replace(target)
    sync(target.parent)
