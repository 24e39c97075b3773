"""A problem of another suite as a task folder: what `sparsesmith tasks import` runs.

python -m services.evaluator.references PATH --into FOLDER [--name NAME] [--set NAME=NUMBER ...] [--program FILE]

Prints the card as JSON; what is wrong, in one line of standard error, with exit code 2.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from services.evaluator.references.client import ReferenceProcess
from services.evaluator.references.importing import ImportOptions, import_task
from services.evaluator.references.limits import reference_limits
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError

BAD_QUESTION = 2


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    settings = EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    try:
        program = options.program.read_text(encoding="utf-8") if options.program else ""
        chosen = ImportOptions(options.name, dict(options.set), program)
        with ReferenceProcess(reference_limits(settings)) as references:
            card = import_task(options.path, options.into, chosen, references)
    except (SparsesmithError, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return BAD_QUESTION
    print(json.dumps({"folder": str(options.into / card.name), **card.model_dump(mode="json")}))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m services.evaluator.references", description=__doc__.splitlines()[0]
    )
    parser.add_argument("path", type=Path, help="a KernelBench problem (.py) or a flashinfer-bench Definition (.json)")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--set", type=_constant, action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--program", type=Path, default=None, help="its naive program (.cu)")
    return parser.parse_args(arguments)


def _constant(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    return name, int(number)


if __name__ == "__main__":
    raise SystemExit(main())
