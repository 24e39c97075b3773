"""`sparsesmith tasks import` asks an evaluator's importer, in a process of its own, and shows what came of it; `tasks
export` writes answers for what was imported."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sparsesmith.cli.authoring import last_line
from sparsesmith.cuda.nvrtc import NvrtcNotFound
from sparsesmith.errors import InvalidInput, InvalidOption, Unavailable
from sparsesmith.operations.imported.folder import VARIABLE, imported_folder
from sparsesmith_proto.api import KernelReport

IMPORTER = "services.evaluator.references"


def imported(
    path: Path, into: Path | None, name: str, constants: Sequence[str], program: Path | None
) -> Mapping[str, Any]:
    """The card of the task, and its folder. Raises InvalidOption, InvalidInput with the importer's own words."""
    folder = into or imported_folder()
    if folder is None:
        raise InvalidOption(f"into: name the folder of imported tasks with --into or {VARIABLE}", field="into")
    for constant in constants:
        _check_constant(constant)
    words = [str(path), "--into", str(folder), "--name", name]
    words += [word for constant in constants for word in ("--set", constant)]
    words += [] if program is None else ["--program", str(program)]
    run = subprocess.run([sys.executable, "-m", IMPORTER, *words], capture_output=True, text=True, check=False)
    if run.returncode:
        raise InvalidInput(last_line(run.stderr) or f"{IMPORTER} ended with code {run.returncode}")
    card: Mapping[str, Any] = json.loads(run.stdout)
    return card


def print_imported(card: Mapping[str, Any], *, as_json: bool) -> None:
    """What it is called, what is to be known of it, and what can be asked for now."""
    if as_json:
        print(json.dumps(card, indent=2))
        return
    shapes = [f"{each['name']}[{', '.join(each['axes'])}]" for each in card["operands"]]
    print(f"imported   {card['name']}: {', '.join(shapes)}")
    print(f"folder     {card['folder']}")
    print(f"inputs     {', '.join(card['kinds'])}")
    for flag in card["flags"]:
        print(f"flagged    {flag}")
    if card["solves"]:
        print(f"solved by  the programs of {card['solves']}")
    elif not card["programs"]:
        print("programs   none: import it with --program NAIVE.cu to have it graded")
    axes = ",".join(f"{name}={size}" for name, size in card["trial"].items())
    print(f"try        sparsesmith tune --task {card['name']}{f' --axes {axes}' if axes else ''}")


def export(answer: Path, out: Path | None) -> Path:
    """The file. Raises InvalidInput for what is no report, Conflict for a task that was not imported, Unavailable
    without a compiler."""
    from sparsesmith.artifacts.exports import exported

    try:
        report = KernelReport.model_validate_json(answer.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{answer} is no report: {field}: {first['msg']}", field=field) from error
    try:
        name, text = exported(report)
    except NvrtcNotFound as error:
        raise Unavailable(f"an export holds machine code, and there is no compiler: {error}") from error
    path = Path(name) if out is None else out
    path.write_text(text, encoding="utf-8")
    return path


def _check_constant(text: str) -> None:
    name, _, number = text.partition("=")
    if not name.isidentifier() or not number.isdecimal() or not int(number):
        raise InvalidOption(f"--set {text}: NAME=NUMBER is needed, of 1 or more", field="set", value=text)
