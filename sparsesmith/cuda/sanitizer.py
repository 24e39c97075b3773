"""Where NVIDIA's compute-sanitizer lies, which comes with a CUDA toolkit and with no wheel."""

import os
import shutil
from pathlib import Path

from sparsesmith.cuda.nvrtc import toolkits

COMMAND = "compute-sanitizer"


def find_sanitizer() -> Path | None:
    """The command on PATH, else of a CUDA toolkit."""
    named = shutil.which(COMMAND)
    if named is not None:
        return Path(named)
    places = (toolkit / "bin" / COMMAND for toolkit in toolkits())
    return next((place for place in places if os.access(place, os.X_OK)), None)
