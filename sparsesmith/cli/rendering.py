"""Reports for people. Every time is labelled measured or estimated.

Programs, logs and names come from models, compilers and servers: they are shown as they are, never read as markup, and
their control characters are replaced.
"""

import re
from typing import assert_never

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import (
    BreakEven,
    EvaluationAnswer,
    KernelReport,
    LibraryAnswer,
    PolicyStatus,
    TunedAnswer,
)
from sparsesmith_proto.kernel import (
    Baselines,
    Candidate,
    CompileFailed,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    FromFamily,
    MeasuredTiming,
    Mismatch,
    Outcome,
    Passed,
    Rejected,
    Sampled,
    TimedOut,
    Timing,
    UserWritten,
)

_CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")


def visible(text: str) -> str:
    """The text without control characters: a terminal would obey them."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def show_report(console: Console, report: KernelReport) -> None:
    """The whole answer: program, outcome, baselines, search, break-even."""
    workload = report.workload
    console.rule(f"{workload.operation} {workload.element_type}")
    console.print(f"matrix     {report.num_rows:,} x {report.num_cols:,}, {report.nnz:,} nonzeros")
    if workload.values is not None:
        _line(console, "values", "fixed: a kernel is valid for this matrix's values only")
    _line(console, "device", describe_device(report.device))
    match report.answer:
        case TunedAnswer(best=best):
            _show_program(console, best.candidate)
            _line(console, "written by", describe_origin(best.candidate))
            _line(console, "outcome", describe_outcome(best.outcome))
        case LibraryAnswer(routine=routine, reason=reason, closest=closest):
            _line(console, "answer", f"{describe_library(routine, report.device)}: {reason}", style="bold")
            if closest is not None:
                _show_program(console, closest.candidate)
                _line(console, "closest", f"{describe_outcome(closest.outcome)} ({describe_origin(closest.candidate)})")
    _show_baselines(console, report.baselines)
    if isinstance(report.answer, TunedAnswer):
        speedup = (
            f"{report.answer.speedup_over_best:.2f}x over the best baseline "
            f"({report.baselines.best_routine().routine}), {report.answer.speedup_over_default:.2f}x over the default "
            f"({report.baselines.default}){_estimate_note(report.device)}"
        )
        _line(console, "speed-up", speedup, style="bold")
    _line(console, "break-even", describe_break_even(report.answer.break_even))
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(report.search.outcomes.items()))
    _line(
        console,
        "search",
        f"{report.search.strategy}: {report.search.num_candidates} candidates in "
        f"{report.search.seconds:.1f} s, the first graded after {report.search.first_graded_s:.1f} s ({outcomes})",
    )
    if report.search.policy_versions:
        _line(console, "policy", f"versions {', '.join(map(str, report.search.policy_versions))}")


def show_evaluation(console: Console, answer: EvaluationAnswer) -> None:
    """One graded program beside the baselines."""
    _line(console, "device", describe_device(answer.device))
    _line(console, "outcome", describe_outcome(answer.evaluation.outcome))
    _show_baselines(console, answer.baselines)
    if isinstance(answer.evaluation.outcome, Passed):
        speedup = answer.baselines.best_routine().timing.median_us / answer.evaluation.outcome.timing.median_us
        note = _estimate_note(answer.device)
        _line(console, "speed-up", f"{speedup:.2f}x over the best baseline{note}", style="bold")


def show_policy(console: Console, status: PolicyStatus) -> None:
    """The policy in service."""
    _line(console, "model", f"{status.model} ({status.num_parameters:,} parameters, encoder {status.encoder})")
    _line(console, "version", str(status.version))
    if status.announcement is not None:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(status.announcement.metrics.items()))
        published = f"{status.announcement.created_at}, after {status.announcement.step} updates ({metrics})"
        _line(console, "published", published)


def describe_device(device: DeviceDescription) -> str:
    match device.kind:
        case "cuda":
            bandwidth = f"{device.copy_bandwidth_gbs:,.0f} GB/s copy bandwidth measured"
            return f"{device.name} ({device.architecture}, {bandwidth})"
        case "interpreter":
            return f"{device.name} for {device.architecture}: no GPU is here, every time below is ESTIMATED"
    assert_never(device.kind)


def describe_library(routine: str, device: DeviceDescription) -> str:
    match device.kind:
        case "cuda":
            return f"use the library's own routine {routine}"
        case "interpreter":
            return f"keep to the library; without a GPU {routine} stands for it"
    assert_never(device.kind)


def describe_origin(candidate: Candidate) -> str:
    match candidate.origin:
        case Sampled(first_version=first, last_version=last):
            return f"the policy, version {first}" if first == last else f"the policy, versions {first} to {last}"
        case FromFamily(family=family, parameters=parameters):
            shown = " ".join(f"{name}={value}" for name, value in parameters.items())
            return f"kernel family {family} {shown}"
        case UserWritten():
            return "you"
    assert_never(candidate.origin)


def describe_timing(timing: Timing) -> str:
    match timing:
        case MeasuredTiming(median_us=median, low_us=low, high_us=high, cold_us=cold):
            interval = f"95 % {low:.2f} to {high:.2f}; cold cache {cold:.2f}"
            return f"{median:.2f} us measured ({interval}), {timing.noise_verdict()}"
        case EstimatedTiming(median_us=median, traffic_model=model):
            return f"{median:.2f} us estimated by traffic model {model}"
    assert_never(timing)


def describe_outcome(outcome: Outcome) -> str:
    match outcome:
        case Passed(timing=timing, resources=resources, storage_format=format_, num_inputs=inputs, worst_error=worst):
            return (
                f"passed on {inputs} inputs (worst error {worst:.1e} of |A||x|), {describe_timing(timing)}, "
                f"format {format_}, {resources.registers} registers"
            )
        case Rejected(message=message):
            return f"rejected: {message}"
        case CompileFailed(log=log):
            return f"does not compile:\n{log}"
        case Mismatch(message=message):
            return f"wrong: {message}"
        case Crashed(message=message):
            return f"crashed: {message}"
        case TimedOut(stage=stage, limit_s=limit, message=message):
            return f"timed out in {stage} after {limit:g} s: {message}"
    assert_never(outcome)


def describe_break_even(break_even: BreakEven) -> str:
    def products(count: int | None) -> str:
        return "never repaid" if count is None else f"repaid after {count:,} products"

    note = " (estimated)" if break_even.kind == "estimated" else ""
    return (
        f"{products(break_even.products_against_best)} against the best baseline, "
        f"{products(break_even.products_against_default)} against the default{note}; "
        f"conversion {break_even.conversion_ms:.1f} ms, tuning {break_even.tuning_s:.1f} s"
    )


def _show_program(console: Console, candidate: Candidate) -> None:
    text = visible(extract_program(candidate.program)).strip()
    console.print(Syntax(text, "cuda", word_wrap=True, background_color="default"))


def _show_baselines(console: Console, baselines: Baselines) -> None:
    table = Table("baseline", "time", "preparation", title_justify="left", box=None)
    best = baselines.best_routine().routine
    for routine in sorted(baselines.routines, key=lambda routine: routine.timing.median_us):
        held = {"best": routine.routine == best, "default": routine.routine == baselines.default}
        marks = ", ".join(mark for mark, holds in held.items() if holds)
        name = f"{routine.routine} ({marks})" if marks else routine.routine
        timing = describe_timing(routine.timing)
        table.add_row(escape(visible(name)), escape(timing), f"{routine.preparation_ms:.2f} ms")
    console.print(table)


def _line(console: Console, label: str, text: str, style: str = "") -> None:
    console.print(f"{label:10} {escape(visible(text))}", style=style, highlight=False)


def _estimate_note(device: DeviceDescription) -> str:
    return " (estimated)" if device.kind == "interpreter" else ""
