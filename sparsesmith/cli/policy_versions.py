"""A policy's versions for people and for programs."""

from sparsesmith.cli.columns import columns
from sparsesmith.cli.rendering import show_policy
from sparsesmith.cli.terminal import console
from sparsesmith_proto.api import PolicyStatus
from sparsesmith_proto.policy import ProbeScores

TITLE = ("version", "state", "compile", "pass", "reward", "gap", "why")


def show_status(status: PolicyStatus, *, as_json: bool) -> None:
    """The policy in service."""
    if as_json:
        print(status.model_dump_json(indent=2))
    else:
        show_policy(console, status)


def list_verdicts(status: PolicyStatus, *, as_json: bool) -> None:
    """A line a version, the newest last; as JSON what was decided of each."""
    if as_json:
        print(f"[{', '.join(verdict.model_dump_json() for verdict in status.verdicts)}]")
        return
    rows = [("0", _state(status, 0, "shipped"), *_scores(None), "")]
    for verdict in status.verdicts:
        state = _state(status, verdict.version, verdict.decision.replace("_", " "))
        rows.append((str(verdict.version), state, *_scores(verdict.scores), verdict.reason))
    if status.under_probe is not None:
        rows.append((str(status.under_probe), "under probe", *_scores(None), ""))
    print(columns(TITLE, rows, right=("version", "compile", "pass", "reward", "gap")))


def _state(status: PolicyStatus, version: int, state: str) -> str:
    return f"{state}, serves" if version == status.version else state


def _scores(scores: ProbeScores | None) -> tuple[str, str, str, str]:
    if scores is None:
        return "", "", "", ""
    gap = "" if scores.logprob_gap is None else f"{scores.logprob_gap:.4f}"
    return f"{100 * scores.compile_share:.0f}%", f"{100 * scores.pass_share:.0f}%", f"{scores.mean_reward:.3f}", gap
