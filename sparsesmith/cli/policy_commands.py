"""`sparsesmith policy show, list, rollback`: which version serves, what was decided of the others, and going back."""

from typing import Annotated

import typer

Url = Annotated[str | None, typer.Option(help="Server (default: SPARSESMITH_URL, else http://127.0.0.1:8000)")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON and nothing else")]

app = typer.Typer(help="The policy that the server samples from.", add_completion=False)


@app.callback(invoke_without_command=True)
def policy(context: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Show the policy in service; `list` its versions; `rollback` to an earlier one."""
    if context.invoked_subcommand is None:
        show(url=url, as_json=as_json)


@app.command()
def show(url: Url = None, as_json: Json = False) -> None:
    """Show the policy in service."""
    from rich.console import Console

    from sparsesmith.cli.rendering import show_policy
    from sparsesmith.client import Client

    with Client(url) as client:
        status = client.policy()
    if as_json:
        print(status.model_dump_json(indent=2))
    else:
        show_policy(Console(), status)


@app.command("list")
def list_versions(url: Url = None, as_json: Json = False) -> None:
    """List the newest versions, what was decided of each, and why."""
    from rich.console import Console

    from sparsesmith.cli.policy_rendering import show_versions
    from sparsesmith.client import Client

    with Client(url) as client:
        status = client.policy()
    if as_json:
        print(f"[{','.join(verdict.model_dump_json() for verdict in status.verdicts)}]")
    else:
        show_versions(Console(), status)


@app.command()
def rollback(
    version: Annotated[
        int | None,
        typer.Argument(
            help="An accepted version; 0: as shipped. Default: the one before the version in service", min=0
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Serve an earlier version again, on the server's own machine. Training goes on from it with smaller steps."""
    from rich.console import Console

    from sparsesmith.cli.rendering import show_policy
    from sparsesmith.client import Client

    with Client(url) as client:
        status = client.roll_back_policy(version)
    if as_json:
        print(status.model_dump_json(indent=2))
    else:
        show_policy(Console(), status)
