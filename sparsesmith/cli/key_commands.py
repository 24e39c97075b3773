"""`sparsesmith keys create, list, revoke, audit`: who may use the server, and who did. They ask its Redis."""

from pathlib import Path
from typing import Annotated

import typer

from sparsesmith.cli.options import Json, State

app = typer.Typer(
    help="API keys of the server whose Redis this machine reaches.", no_args_is_help=True, rich_markup_mode=None
)

DEFAULT_STATE = Path(".sparsesmith")
Name = Annotated[str, typer.Argument(help="Whom the key is for: letters, digits and _.@-", metavar="NAME")]
NameOrId = Annotated[str, typer.Argument(help="A key's name or id", metavar="KEY")]


@app.command()
def create(
    name: Name,
    unfinished_jobs: Annotated[
        int | None, typer.Option(help="Jobs that have not ended, at most [default: 32]", metavar="NUMBER")
    ] = None,
    evaluator_seconds: Annotated[
        float | None, typer.Option(help="Seconds of evaluators a day [default: 86400]", metavar="SECONDS")
    ] = None,
    bytes_a_day: Annotated[
        int | None, typer.Option("--bytes", help="Of request bodies a day [default: 17179869184]", metavar="BYTES")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests a minute [default: 1200]", metavar="NUMBER")] = None,
    state: State = DEFAULT_STATE,
    as_json: Json = False,
) -> None:
    """Make a key and print it, once: nobody can read it again."""
    from sparsesmith.cli.keys import create_key

    given = {
        "unfinished_jobs": unfinished_jobs,
        "evaluator_seconds_a_day": evaluator_seconds,
        "bytes_a_day": bytes_a_day,
        "requests_a_minute": requests,
    }
    create_key(state, name, {field: value for field, value in given.items() if value is not None}, as_json=as_json)


@app.command("list")
def list_keys(state: State = DEFAULT_STATE, as_json: Json = False) -> None:
    """List the keys, what each may take and what it has used today."""
    from sparsesmith.cli.keys import show_keys

    show_keys(state, as_json=as_json)


@app.command()
def revoke(key: NameOrId, state: State = DEFAULT_STATE, as_json: Json = False) -> None:
    """Make a key open nothing from now on; its jobs go on, and their permalinks open them."""
    from sparsesmith.cli.keys import revoke_key

    revoke_key(state, key, as_json=as_json)


@app.command()
def audit(
    limit: Annotated[int, typer.Option(help="Lines to show at most", min=1, max=100_000, metavar="NUMBER")] = 50,
    state: State = DEFAULT_STATE,
    as_json: Json = False,
) -> None:
    """Show who ran what, the newest last."""
    from sparsesmith.cli.keys import show_audit

    show_audit(state, limit, as_json=as_json)
