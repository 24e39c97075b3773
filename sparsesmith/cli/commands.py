"""The commands. Each is thin: it reads files, calls the client or the stack, and prints."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

import sparsesmith
from sparsesmith.cli.files import matrix_file, program_file, save_artifacts
from sparsesmith.cli.policy_commands import app as policy_app
from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_evaluation, show_report, visible
from sparsesmith.client import Client, tuning_options
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith_proto.api import SearchStrategy, ValuesOption
from sparsesmith_proto.message import ElementType, Operation

app = typer.Typer(
    help="Post a sparse matrix, get back a CUDA kernel tuned for it.", no_args_is_help=True, add_completion=False
)
train_app = typer.Typer(help="Train a policy of your own.", no_args_is_help=True)
app.add_typer(train_app, name="train")
app.add_typer(policy_app, name="policy")

console = Console()
errors = Console(stderr=True)

MatrixFile = Annotated[Path, typer.Argument(help="A sparse matrix: .mtx, .mtx.gz or SciPy .npz", metavar="MATRIX")]
Url = Annotated[str | None, typer.Option(help="Server (default: SPARSESMITH_URL, else http://127.0.0.1:8000)")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else")]
OperationOption = Annotated[Operation, typer.Option(help="y = A x, or C = A B")]
ElementTypeOption = Annotated[ElementType, typer.Option("--type", help="Type of the values")]
NumDenseCols = Annotated[int, typer.Option(help="Columns of B (spmm)")]
ValuesOf = Annotated[
    ValuesOption,
    typer.Option("--values", help="Right for any values, or for the file's own, exploiting them"),
]
Version = Annotated[bool, typer.Option("--version", help="Print the version and exit")]

USER_MISTAKE = 2
NOT_PASSED = 3
INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def about(version: Version = False) -> None:
    """Post a sparse matrix, get back a CUDA kernel tuned for it."""
    if version:
        print(f"sparsesmith {sparsesmith.__version__}")
        raise typer.Exit


@app.command()
def tune(
    matrix: MatrixFile,
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    values: ValuesOf = "any",
    search: Annotated[SearchStrategy, typer.Option(help="How to look for kernels")] = "auto",
    candidates: Annotated[int, typer.Option(help="Kernels to try at most")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds to search at most")] = 120,
    out: Annotated[Path | None, typer.Option(help="Folder for the .cu, .hpp, .py and .json of the answer")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Tune a kernel for a matrix. Ctrl-C cancels the search."""
    options = tuning_options(
        operation=operation,
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        values=values,
        search=search,
        budget={"candidates": candidates, "seconds": seconds},
    )
    name, data = matrix_file(matrix)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # Before the search, whose answer should not be lost to a wrong folder.
    with Client(url) as client:
        with Progress(errors, quiet=as_json) as progress:
            job = client.submit(name, data, options)
            with _cancelled_by_interrupt(client, job.job_id):
                report = client.wait(job.job_id, progress.update)
        paths = [] if out is None else save_artifacts(client, job.job_id, report, out)
    if as_json:
        print(report.model_dump_json(indent=2))
        return
    show_report(console, report)
    for path in paths:
        console.print(f"wrote      {escape(str(path))}", soft_wrap=True)


@app.command()
def grade(
    program: Annotated[Path, typer.Argument(help="A kernel program (.cu)", metavar="KERNEL.cu")],
    matrix: MatrixFile,
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    values: ValuesOf = "any",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Grade a kernel program that you wrote. Exits with 3 unless it passed."""
    options = tuning_options(
        operation=operation, element_type=element_type, num_dense_cols=num_dense_cols, values=values
    )
    text = program_file(program)
    name, data = matrix_file(matrix)
    with Client(url) as client, Progress(errors, quiet=as_json) as progress:
        answer = client.grade_file(text, name, data, options, progress.update)
    if as_json:
        print(answer.model_dump_json(indent=2))
    else:
        show_evaluation(console, answer)
    if answer.evaluation.outcome.outcome != "passed":
        raise typer.Exit(NOT_PASSED)


@app.command()
def up(
    evaluators: Annotated[int, typer.Option(help="Evaluator processes to start", min=1, max=64)] = 1,
    port: Annotated[int, typer.Option(help="Port of the generator's HTTP interface", min=1, max=65535)] = 8000,
    state: Annotated[Path, typer.Option(help="Folder for the queue, the weights and the logs")] = Path(".sparsesmith"),
) -> None:
    """Start the whole stack and keep it running until Ctrl-C."""
    _check_installed("redis", "fastapi")
    from sparsesmith.cli.local_stack import keep_up

    keep_up(console, evaluators=evaluators, port=port, state=state)


@app.command()
def demo(
    matrix: Annotated[Path, typer.Argument(help="Matrix to tune for")] = Path("examples/bcsstk13.mtx"),
    state: Annotated[Path, typer.Option(help="Folder for the queue, the weights and the logs")] = Path(".sparsesmith"),
) -> None:
    """Start the stack, tune a kernel for a real matrix, print it with its report, stop."""
    _check_installed("redis", "fastapi")
    from sparsesmith.cli.local_stack import run_demo

    run_demo(console, matrix=matrix, state=state)


@train_app.command(
    "pretrain", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train_pretrain(context: typer.Context) -> None:
    """Pretrain on CUDA source (all options go to services.trainer.offline pretrain)."""
    _become("services.trainer.offline", ["pretrain", *context.args])


@train_app.command(
    "sft", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train_sft(context: typer.Context) -> None:
    """Supervised fine-tuning on measured family programs (all options go to services.trainer.offline sft)."""
    _become("services.trainer.offline", ["sft", *context.args])


@train_app.command(
    "ppo", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train_ppo(context: typer.Context) -> None:
    """Online PPO on what the evaluators measure (all options go to services.trainer)."""
    _become("services.trainer", context.args)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2."""
    try:
        app()
    except SparsesmithError as error:
        _fail(error.message)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def _cancelled_by_interrupt(client: Client, job_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        client.cancel(job_id)
        raise


def _check_installed(*packages: str) -> None:
    if importlib.util.find_spec("services") is None:
        raise Unavailable(
            "this command runs services, which are in the repository and in its images, not in the wheel: use a clone"
        )
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise Unavailable(
            f"this command runs services, and {', '.join(missing)} is not installed: "
            "pip install 'sparsesmith[generator,evaluator,trainer]'"
        )


def _become(module: str, arguments: list[str]) -> NoReturn:
    _check_installed("torch", "redis")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def _fail(message: str) -> NoReturn:
    line = " ".join(visible(message).split())
    errors.print(f"[bold red]error[/]: {escape(line)}", highlight=False, soft_wrap=True)
    sys.exit(USER_MISTAKE)
