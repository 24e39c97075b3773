"""`sparsesmith tasks list, show, import, export`: what kernels may be asked for without a matrix."""

from pathlib import Path
from typing import Annotated

import typer

from sparsesmith.cli.options import Headers, Json, Url

app = typer.Typer(
    help="Tasks: operations without a matrix, for `tune --task` and `grade --task`.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="A task's name", metavar="NAME")]


Source = Annotated[Path, typer.Argument(help="A KernelBench problem (.py) or a flashinfer-bench Definition (.json)")]
Into = Annotated[
    Path | None, typer.Option(help="Folder of imported tasks; else SPARSESMITH_IMPORTED_TASKS", show_default=False)
]
TaskName = Annotated[str, typer.Option(help="The task's name; else made of the file's", show_default=False)]
Constants = Annotated[
    list[str] | None,
    typer.Option("--set", help="A size of a KernelBench module anew: NAME=NUMBER", metavar="NAME=NUMBER"),
]
Naive = Annotated[Path | None, typer.Option(help="Its naive program (.cu); else one of ours that computes the same")]


@app.callback(invoke_without_command=True)
def tasks(context: typer.Context, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """List the server's tasks, show one."""
    if context.invoked_subcommand is None:
        list_tasks(url=url, header=header, as_json=as_json)


@app.command("list")
def list_tasks(url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """List the server's tasks with their axes."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.task_cards import print_tasks

    with connection(url, header) as client:
        print_tasks(client.tasks(), as_json=as_json)


@app.command()
def show(name: Name, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Show what a task computes, its operands, and the sizes at which it is measured."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.task_cards import print_task

    with connection(url, header) as client:
        print_task(client.task(name), as_json=as_json)


@app.command("import")
def import_task(
    path: Source,
    into: Into = None,
    name: TaskName = "",
    constants: Constants = None,
    program: Naive = None,
    as_json: Json = False,
) -> None:
    """Make a task of another suite's problem. Its reference runs in a confined process of its own."""
    from sparsesmith.cli.importing import imported, print_imported

    print_imported(imported(path, into, name, constants or [], program), as_json=as_json)


@app.command("export")
def export_answer(
    answer: Annotated[Path, typer.Argument(help="The report that `tune --out` wrote (.json)", metavar="ANSWER.json")],
    out: Annotated[Path | None, typer.Option(help="The file; else one in this folder", show_default=False)] = None,
) -> None:
    """Write an answer for an imported task as its suite has it: a flashinfer-bench Solution, a KernelBench module."""
    from sparsesmith.cli.importing import export

    print(f"wrote      {export(answer, out)}")
