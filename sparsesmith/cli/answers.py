"""What a finished job leaves with its user: the report on the terminal, the files in a folder."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from sparsesmith.cli.files import save_artifacts
from sparsesmith.cli.known import known_result
from sparsesmith.cli.rendering import show_line, show_report
from sparsesmith.cli.terminal import console
from sparsesmith.client import Client
from sparsesmith_proto.api import KernelReport


def print_report(report: KernelReport, *, as_json: bool) -> None:
    """The report as JSON, or for people."""
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        show_answer(console, report)


def show_answer(console: Console, report: KernelReport) -> None:
    """The report, and beside an estimate what was measured for the same question."""
    is_estimated = report.device.kind == "interpreter"
    known = known_result(report.workload) if is_estimated else None
    show_report(console, report, None if known is None else known.describe())
    if report.transposed is not None:
        console.print()
        show_line(console, "transposed", "A^T, beside A", style="bold")
        if (extra := report.transposed.extra_bytes) is not None:
            show_line(console, "memory", f"{extra:,} bytes beside those of A's kernel")
        show_report(console, report.transposed)


def save_answer(client: Client, job_id: str, report: KernelReport, folder: Path, *, quiet: bool) -> None:
    """Write the files of the answer into the folder, which is there, and name them."""
    for path in save_artifacts(client, job_id, report, folder):
        if not quiet:
            console.print(f"wrote      {escape(str(path))}", soft_wrap=True)
