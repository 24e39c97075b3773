"""`/jobs/{id}`: a report that can be read without a script; with one it is replaced by the live page."""

from html import escape
from typing import assert_never

from services.generator.http.page_shell import shell
from sparsesmith_proto.api import (
    BreakEven,
    Cancelled,
    EvaluationAnswer,
    Failed,
    Finished,
    Graded,
    JobStatus,
    KernelReport,
    LibraryAnswer,
    Queued,
    Running,
    TriedCandidate,
    TunedAnswer,
)
from sparsesmith_proto.kernel import Baselines, EstimatedTiming, Evaluation, MeasuredTiming, Passed, Timing

REFRESH_S = 5
"""Without scripts a job that has not ended is looked at this often."""
MAX_ROWS = 100
"""Candidates that the report shows."""


def job_page(status: JobStatus, candidates: tuple[TriedCandidate, ...], secret: str = "") -> str:
    """The whole document. `secret`: of the permalink that it was opened by; its links carry it on."""
    refresh = REFRESH_S if isinstance(status.status, Queued | Running) else None
    links = _links(status, secret)
    body = f"<h1>Job {escape(status.job_id)}</h1><p>Accepted {escape(status.accepted_at)}. {links}</p>"
    title = f"{_headline(status)} - sparsesmith"
    return shell("jobs", title, body + _state(status) + _tried(candidates), root="../", refresh_s=refresh)


def missing_page(message: str) -> str:
    """For a job that is not, or not any more."""
    body = f'<h1>No such job</h1><p class="lead">{escape(message)}.</p><p><a href="../">Tune a matrix</a></p>'
    return shell("missing", "No such job - sparsesmith", body, root="../")


def locked_page() -> str:
    """For a job of a server that asks for keys, whether there is one or not."""
    body = """<h1>A job</h1>
<p class="lead">This server asks for a key, or for the job's permalink, which its owner has.</p>
<noscript><p>Entering a key needs JavaScript; a permalink (<code>?secret=...</code>) does not.</p></noscript>"""
    return shell("jobs", "A job - sparsesmith", body, root="../")


def timed(timing: Timing) -> str:
    """A time and how far to trust it. An estimate is called one."""
    match timing:
        case MeasuredTiming(median_us=median_us):
            return f"{median_us:.2f} us, {escape(timing.noise_verdict())}"
        case EstimatedTiming(median_us=median_us):
            return f"{median_us:.2f} us <em>estimated</em>"
        case _:
            assert_never(timing)


def _headline(status: JobStatus) -> str:
    match status.status:
        case Queued(position=position):
            return f"waiting, {position} ahead"
        case Running(num_graded=num_graded, budget_candidates=budget):
            return f"{num_graded} of {budget} candidates graded"
        case Finished(report=report):
            return _verdict(report)
        case Graded(answer=answer):
            return answer.evaluation.outcome.outcome.replace("_", " ")
        case Failed(problem=problem):
            return f"failed: {problem.detail}"
        case Cancelled():
            return "cancelled"
        case state:
            assert_never(state)


def _verdict(report: KernelReport) -> str:
    library = f"the best of {len(report.baselines.routines)} routines"
    label = "" if report.device.kind == "cuda" else " (estimated)"
    match report.answer:
        case TunedAnswer(speedup_over_best=speedup):
            return f"{speedup:.2f}x faster than {library}{label}"
        case LibraryAnswer(routine=routine):
            return f"use {routine}: nothing faster was found{label}"
        case answer:
            assert_never(answer)


def _links(status: JobStatus, secret: str) -> str:
    address = f"../v1/kernels/{escape(status.job_id)}"
    query = f"?secret={escape(secret)}" if secret else "?"
    links = [f'<a href="{address}{query}">JSON</a>', f'<a href="{address}/candidates{query}">what was tried</a>']
    if isinstance(status.status, Finished):
        links.append(f'<a href="{address}/artifact{query}&amp;kind=zip">all files</a>')
    return ", ".join(links)


def _state(status: JobStatus) -> str:
    headline = f'<p class="lead">{escape(_headline(status))}</p>'
    match status.status:
        case Finished(report=report):
            return headline + _report(report)
        case Graded(answer=answer):
            return headline + _graded(answer)
        case _:
            return headline


def _report(report: KernelReport) -> str:
    shown: Evaluation | None
    match report.answer:
        case TunedAnswer(best=best, break_even=even):
            shown, reason = best, ""
        case LibraryAnswer(closest=closest, break_even=even, reason=why):
            shown, reason = closest, f"<p>{escape(why)}</p>"
        case answer:
            assert_never(answer)
    return "".join(
        [
            reason,
            f"<p>{report.num_rows:,} x {report.num_cols:,}, {report.nnz:,} nonzeros; {escape(report.device.name)}</p>",
            f"<p>{escape(_repaid(even))}</p>",
            _routines(report.baselines),
            "" if shown is None else _program(shown),
        ]
    )


def _repaid(even: BreakEven) -> str:
    label = "" if even.kind == "measured" else " (estimated)"
    cost = f"the search took {even.tuning_s:.1f} s, conversion {even.conversion_ms:.1f} ms"
    if even.products_against_best is None:
        return f"Against the best routine nothing is gained; {cost}."
    return f"Repaid after {even.products_against_best:,} products against the best routine{label}; {cost}."


def _graded(answer: EvaluationAnswer) -> str:
    return _program(answer.evaluation) + _routines(answer.baselines)


def _program(evaluation: Evaluation) -> str:
    outcome = evaluation.outcome
    told = timed(outcome.timing) if isinstance(outcome, Passed) else escape(outcome.outcome.replace("_", " "))
    if isinstance(outcome, Passed):
        told += "".join(f"; {check.tool}: {escape(check.describe())}" for check in outcome.sanitized)
    return f"<h2>Program</h2><p>{told}</p><pre tabindex=0>{escape(evaluation.candidate.program)}</pre>"


def _routines(baselines: Baselines) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.routine)}</td><td>{timed(each.timing)}</td></tr>" for each in baselines.routines
    )
    return f"<h2>Routines of the library</h2><table><tr><th>routine</th><th>time</th></tr>{rows}</table>"


def _tried(candidates: tuple[TriedCandidate, ...]) -> str:
    if not candidates:
        return ""
    rows = "".join(
        f"<tr><td>{each.number}</td><td>{escape(each.origin.kind)}</td><td>{_outcome(each)}</td></tr>"
        for each in candidates[:MAX_ROWS]
    )
    heading = f"<h2>What was tried</h2><p>The first {min(len(candidates), MAX_ROWS)}.</p>"
    return f"{heading}<table><tr><th>number</th><th>source</th><th>outcome</th></tr>{rows}</table>"


def _outcome(tried: TriedCandidate) -> str:
    match tried.outcome:
        case Passed(timing=timing):
            return timed(timing)
        case failed:
            return f"{escape(failed.outcome.replace('_', ' '))}: {escape((tried.message or '')[:300])}"
