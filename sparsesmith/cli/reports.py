"""`sparsesmith verify`: whether a report is what a server signed."""

from pathlib import Path

from rich.markup import escape

from sparsesmith.artifacts.signing import read_key, verified
from sparsesmith.cli.rendering import describe_device, show_line, verdict
from sparsesmith.cli.terminal import console, errors
from sparsesmith.cli.visible import visible
from sparsesmith.errors import InvalidReport
from sparsesmith_proto.api import SigningKey

GENUINE = 0
NOT_GENUINE = 3


def key_in(path: Path) -> SigningKey:
    """A public key from a file. Raises InvalidOption."""
    return read_key(path.read_bytes())


def verify_report(path: Path, key: SigningKey, *, as_json: bool) -> int:
    """Says what is signed, or what is wrong; the exit code."""
    try:
        report = verified(path.read_bytes(), key)
    except InvalidReport as error:
        errors.print(f"[bold red]not genuine[/]: {escape(visible(error.message))}", highlight=False, soft_wrap=True)
        return NOT_GENUINE
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        show_line(console, "genuine", f"word for word what key {key.key_id} signed", style="bold green")
        show_line(console, "verdict", verdict(report))
        show_line(console, "workload", f"{report.workload.operation} {report.workload.element_type}")
        show_line(console, "pattern", report.workload.pattern or "none: a task")
        show_line(console, "device", describe_device(report.device))
    return GENUINE
