"""`sparsesmith policy show, list, rollback`: which version serves, what was decided of the others, and going back."""

from typing import Annotated

import typer

from sparsesmith.cli.options import Headers, Json, Url

app = typer.Typer(help="The policy that the server samples from.", rich_markup_mode=None)

Version = Annotated[
    int | None,
    typer.Argument(
        help="An accepted version; 0: as shipped. Default: the accepted one before the version in service",
        min=0,
        metavar="VERSION",
    ),
]


@app.callback(invoke_without_command=True)
def policy(context: typer.Context, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Show the policy in service, list its versions, go back to an earlier one."""
    if context.invoked_subcommand is None:
        show(url=url, header=header, as_json=as_json)


@app.command()
def show(url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Show the policy in service."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.policy_versions import show_status

    with connection(url, header) as client:
        show_status(client.policy(), as_json=as_json)


@app.command("list")
def list_versions(url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """List the newest versions, what was decided of each, and why."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.policy_versions import list_verdicts

    with connection(url, header) as client:
        list_verdicts(client.policy(), as_json=as_json)


@app.command()
def rollback(version: Version = None, url: Url = None, header: Headers = None, as_json: Json = False) -> None:
    """Serve an earlier version again, from the server's own machine; training goes on from it with smaller steps."""
    from sparsesmith.cli.connection import connection
    from sparsesmith.cli.policy_versions import show_status

    with connection(url, header) as client:
        show_status(client.roll_back_policy(version), as_json=as_json)
