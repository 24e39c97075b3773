"""Files that a kill at any moment leaves whole."""

import os
from pathlib import Path


def write_durably(path: Path, content: memoryview | bytes) -> None:
    """Written beside, synced, renamed: a reader sees all of it or nothing, also after a power cut."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
