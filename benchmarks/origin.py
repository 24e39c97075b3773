"""Where result files lie, how they are written, and what they say of where they come from."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparsesmith_proto.kernel import DeviceDescription

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def source_commit() -> str:
    """Of the code: as SPARSESMITH_COMMIT says, which tells it outside a checkout, else git; `unknown` without both."""
    if told := os.environ.get("SPARSESMITH_COMMIT"):
        return told
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    return run.stdout.strip() or "unknown"


def command(module: str) -> str:
    """This run's command, files by their names alone: where they lay says nothing elsewhere."""
    return " ".join([f"python -m {module}", *(Path(word).name if "/" in word else word for word in sys.argv[1:])])


def machine() -> str:
    """Cores, kind of processor, and Python."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def device_folder(device: DeviceDescription) -> str:
    """The folder of a device's results."""
    return folder_of(device.name)


def folder_of(device_name: str) -> str:
    return "h200" if "H200" in device_name else device_name.lower().replace(" ", "-")


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Written beside and renamed: a run that is killed leaves what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
