"""A policy's versions for people."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparsesmith.cli.rendering import visible
from sparsesmith_proto.api import PolicyStatus
from sparsesmith_proto.policy import ProbeScores


def show_versions(console: Console, status: PolicyStatus) -> None:
    """A row a version, the newest last."""
    table = Table("version", "", "compile", "pass", "reward", "gap", "why", box=None)
    table.add_row("0", _marked(status, 0, "shipped"), *_scores(None), "")
    for verdict in status.verdicts:
        state = _marked(status, verdict.version, verdict.decision.replace("_", " "))
        table.add_row(str(verdict.version), state, *_scores(verdict.scores), escape(visible(verdict.reason)))
    if status.under_probe is not None:
        table.add_row(str(status.under_probe), "under probe", *_scores(None), "")
    console.print(table)


def _marked(status: PolicyStatus, version: int, state: str) -> str:
    return f"{state}, SERVES" if version == status.version else state


def _scores(scores: ProbeScores | None) -> tuple[str, str, str, str]:
    if scores is None:
        return "", "", "", ""
    gap = "" if scores.logprob_gap is None else f"{scores.logprob_gap:.4f}"
    return f"{100 * scores.compile_share:.0f}%", f"{100 * scores.pass_share:.0f}%", f"{scores.mean_reward:.3f}", gap
