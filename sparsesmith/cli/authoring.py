"""`sparsesmith new-kernel` and `check`: for those who write kernel programs themselves."""

import subprocess
import sys
from pathlib import Path

from rich.markup import escape

from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_evaluation
from sparsesmith.cli.terminal import console, errors
from sparsesmith.cli.tuning import NOT_PASSED, PASSED
from sparsesmith.errors import Conflict, InvalidInput
from sparsesmith.program.starting import starting_program
from sparsesmith_proto.api import EvaluationAnswer, TuningOptions
from sparsesmith_proto.kernel import Passed
from sparsesmith_proto.words import ElementType

GRADER = "services.evaluator.local"


def write_starting_program(format_name: str, operation: str, element_type: ElementType, path: Path) -> None:
    """Raises InvalidProgram, InvalidOption, and Conflict for a file that is there: somebody's work may be in it."""
    text = starting_program(format_name, operation, element_type)
    if path.exists():
        raise Conflict(f"{path} is there already: name another file with --out", field="out", value=path)
    path.write_text(text, encoding="utf-8")
    console.print(f"wrote      {escape(str(path))}", soft_wrap=True)


def check_program(program: Path, matrix: Path, options: TuningOptions, *, as_json: bool) -> int:
    """Grade here, show the outcome; the exit code. Raises InvalidInput where the question is wrong."""
    with Progress(errors, quiet=as_json) as progress:
        progress.tell("grading on this machine (an interpreter that was never used here is compiled first)")
        run = subprocess.run(command(program, matrix, options), capture_output=True, text=True, check=False)
    if run.returncode:
        raise InvalidInput(last_line(run.stderr) or f"{GRADER} ended with code {run.returncode}")
    answer = EvaluationAnswer.model_validate_json(run.stdout)
    if as_json:
        print(answer.model_dump_json(indent=2))
    else:
        show_evaluation(console, answer)
    return PASSED if isinstance(answer.evaluation.outcome, Passed) else NOT_PASSED


def command(program: Path, matrix: Path, options: TuningOptions) -> list[str]:
    """A process of its own: the device and the compilers end with it."""
    chosen = {
        "--operation": options.operation,
        "--type": options.element_type,
        "--num-dense-cols": str(options.num_dense_cols),
        "--values": options.values,
    }
    named = [word for option in chosen.items() for word in option]
    if options.deterministic:
        named.append("--deterministic")
    if options.alpha_beta:
        named.append("--alpha-beta")
    return [sys.executable, "-m", GRADER, str(program), str(matrix), *named]


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
