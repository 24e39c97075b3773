"""`sparsesmith tasks list, show`: what kernels may be asked for without a matrix."""

from typing import Annotated

import typer

from sparsesmith.cli.options import Headers, Json, Url

app = typer.Typer(
    help="Tasks: operations without a matrix, for `tune --task` and `grade --task`.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="A task's name", metavar="NAME")]


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
