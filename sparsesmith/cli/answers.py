"""What a finished job leaves with its user: the report on the terminal, the files in a folder."""

from pathlib import Path

from rich.markup import escape

from sparsesmith.cli.files import save_artifacts
from sparsesmith.cli.rendering import show_report
from sparsesmith.cli.terminal import console
from sparsesmith.client import Client
from sparsesmith_proto.api import KernelReport


def print_report(report: KernelReport, *, as_json: bool) -> None:
    """The report as JSON, or for people."""
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        show_report(console, report)


def save_answer(client: Client, job_id: str, report: KernelReport, folder: Path, *, quiet: bool) -> None:
    """Write the files of the answer into the folder, which is there, and name them."""
    for path in save_artifacts(client, job_id, report, folder):
        if not quiet:
            console.print(f"wrote      {escape(str(path))}", soft_wrap=True)
