"""`sparsesmith gpus list, release`: GPUs in quarantine. They ask the server's Redis, as `sparsesmith keys` does."""

from pathlib import Path
from typing import Annotated

import typer

from sparsesmith.cli.options import Json, State

app = typer.Typer(
    help="GPUs that evaluators found faulty, of the server whose Redis this machine reaches.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DEFAULT_STATE = Path(".sparsesmith")


@app.command("list")
def list_gpus(state: State = DEFAULT_STATE, as_json: Json = False) -> None:
    """List the GPUs in quarantine, since when and why."""
    from sparsesmith.cli.gpus import show_quarantine

    show_quarantine(state, as_json=as_json)


@app.command()
def release(
    uuid: Annotated[str, typer.Argument(help="A GPU's UUID, as the list shows it", metavar="UUID")],
    state: State = DEFAULT_STATE,
) -> None:
    """Let evaluators take a GPU again, once somebody has looked at it."""
    from sparsesmith.cli.gpus import release_gpu

    release_gpu(state, uuid)
