"""The commands. Each is thin: it reads files, calls the client or the stack, and prints."""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console

from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_evaluation, show_policy, show_report
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.errors import InvalidInput, InvalidOption, SparsesmithError
from sparsesmith_proto.api import KernelReport, SearchStrategy, TunedAnswer, TuningOptions
from sparsesmith_proto.message import ElementType, Operation

app = typer.Typer(
    help="Post a sparse matrix, get back a CUDA kernel tuned for it.", no_args_is_help=True, add_completion=False
)
train_app = typer.Typer(help="Train a policy of your own.", no_args_is_help=True)
app.add_typer(train_app, name="train")

console = Console()
errors = Console(stderr=True)

MatrixFile = Annotated[Path, typer.Argument(help="A sparse matrix: .mtx, .mtx.gz or SciPy .npz", metavar="MATRIX")]
Url = Annotated[str | None, typer.Option(help="Server (default: SPARSESMITH_URL, else http://127.0.0.1:8000)")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else")]
OperationOption = Annotated[Operation, typer.Option(help="y = A x, or C = A B")]
ElementTypeOption = Annotated[ElementType, typer.Option("--type", help="Type of the values")]
NumDenseCols = Annotated[int, typer.Option(help="Columns of B (spmm)")]


@app.command()
def tune(
    matrix: MatrixFile,
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    search: Annotated[SearchStrategy, typer.Option(help="How to look for kernels")] = "auto",
    candidates: Annotated[int, typer.Option(help="Kernels to try at most")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds to search at most")] = 120,
    out: Annotated[Path | None, typer.Option(help="Folder for the .cu, .hpp, .py and .json of the answer")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Tune a kernel for a matrix."""
    choices = options(
        operation=operation,
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        search=search,
        budget={"candidates": candidates, "seconds": seconds},
    )
    with Client(url) as client:
        job = client.submit(*matrix_file(matrix), choices)
        with Progress(errors, quiet=as_json) as progress:
            report = client.wait(job.job_id, progress.update)
        if out is not None:
            save_artifacts(client, job.job_id, report, out)
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        show_report(console, report)


@app.command()
def grade(
    program: Annotated[Path, typer.Argument(help="A kernel program (.cu)", metavar="KERNEL.cu")],
    matrix: MatrixFile,
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Grade a kernel program that you wrote. Exits with 3 unless it passed."""
    choices = options(operation=operation, element_type=element_type, num_dense_cols=num_dense_cols)
    try:
        text = program.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{program}: not UTF-8 at byte {error.start}", field="program", value=f"byte {error.start}", limit="UTF-8"
        ) from error
    with Client(url) as client, Progress(errors, quiet=as_json) as progress:
        answer = client.grade(text, *matrix_file(matrix), choices, progress.update)
    if as_json:
        print(answer.model_dump_json(indent=2))
    else:
        show_evaluation(console, answer)
    if answer.evaluation.outcome.outcome != "passed":
        raise typer.Exit(3)


@app.command()
def policy(url: Url = None, as_json: Json = False) -> None:
    """Show the policy that the server samples from."""
    with Client(url) as client:
        status = client.policy()
    if as_json:
        print(status.model_dump_json(indent=2))
    else:
        show_policy(console, status)


@app.command()
def up(
    evaluators: Annotated[int, typer.Option(help="Evaluator processes to start")] = 1,
    port: Annotated[int, typer.Option(help="Port of the generator's HTTP interface")] = 8000,
    state: Annotated[Path, typer.Option(help="Folder for the queue, the weights and the logs")] = Path(".sparsesmith"),
) -> None:
    """Start the whole stack and keep it running until Ctrl-C."""
    from sparsesmith.cli.local_stack import keep_up

    keep_up(console, evaluators=evaluators, port=port, state=state)


@app.command()
def demo(
    matrix: Annotated[Path, typer.Argument(help="Matrix to tune for")] = Path("examples/bcsstk13.mtx"),
    state: Annotated[Path, typer.Option(help="Folder for the queue, the weights and the logs")] = Path(".sparsesmith"),
) -> None:
    """Start the stack, tune a kernel for a real matrix, print it with its report, stop."""
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


def options(**given: object) -> TuningOptions:
    """Options from the command line. Raises InvalidOption naming the first bad one."""
    try:
        return TuningOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "options"
        raise InvalidOption(f"{field}: {first['msg']}", field=field, value=first.get("input")) from error


def save_artifacts(client: Client, job_id: str, report: KernelReport, folder: Path) -> None:
    """Write the files of an answer under their names in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    has_program = isinstance(report.answer, TunedAnswer)
    for kind in ("cu", "hpp", "py", "json") if has_program else ("py", "json"):
        (folder / f"kernel_{report.workload.pattern[:12]}.{kind}").write_bytes(client.artifact(job_id, kind))


def _become(module: str, arguments: list[str]) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2."""
    try:
        app()
    except SparsesmithError as error:
        errors.print(f"[bold red]error[/]: {error.message}", highlight=False)
        sys.exit(2)
    except FileNotFoundError as error:
        errors.print(f"[bold red]error[/]: no such file: {error.filename}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


