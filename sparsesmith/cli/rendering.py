"""Reports for people. Every time is labelled measured or estimated."""

from typing import assert_never

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

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


def show_report(console: Console, report: KernelReport) -> None:
    """The whole answer: program, outcome, baselines, search, break-even."""
    workload = report.workload
    console.rule(f"{workload.operation} {workload.element_type}")
    console.print(f"matrix     {report.num_rows:,} x {report.num_cols:,}, {report.nnz:,} nonzeros")
    console.print(f"device     {describe_device(report.device)}")
    match report.answer:
        case TunedAnswer(best=best):
            console.print(Syntax(best.candidate.program.strip(), "cuda", word_wrap=True, background_color="default"))
            console.print(f"written by {describe_origin(best.candidate)}")
            console.print(f"outcome    {describe_outcome(best.outcome)}")
        case LibraryAnswer(routine=routine, reason=reason, closest=closest):
            console.print(f"[bold]answer     use the library's own routine {routine}[/]: {reason}")
            if closest is not None:
                console.print(f"closest    {describe_outcome(closest.outcome)} ({describe_origin(closest.candidate)})")
    _show_baselines(console, report.baselines)
    if isinstance(report.answer, TunedAnswer):
        console.print(
            f"[bold]speed-up   {report.answer.speedup_over_best:.2f}x over the best baseline "
            f"({report.baselines.best_routine().routine}), {report.answer.speedup_over_default:.2f}x over the default "
            f"({report.baselines.default})[/]{_estimate_note(report.device)}"
        )
        console.print(f"break-even {describe_break_even(report.answer.break_even)}")
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(report.search.outcomes.items()))
    console.print(
        f"search     {report.search.strategy}: {report.search.num_candidates} candidates in "
        f"{report.search.seconds:.1f} s, the first graded after {report.search.first_graded_s:.1f} s ({outcomes})"
    )
    if report.search.policy_versions:
        console.print(f"policy     versions {', '.join(map(str, report.search.policy_versions))}")


def show_evaluation(console: Console, answer: EvaluationAnswer) -> None:
    """One graded program beside the baselines."""
    console.print(f"device     {describe_device(answer.device)}")
    console.print(f"outcome    {describe_outcome(answer.evaluation.outcome)}")
    _show_baselines(console, answer.baselines)
    if isinstance(answer.evaluation.outcome, Passed):
        speedup = answer.baselines.best_routine().timing.median_us / answer.evaluation.outcome.timing.median_us
        console.print(f"[bold]speed-up   {speedup:.2f}x over the best baseline[/]{_estimate_note(answer.device)}")


def show_policy(console: Console, status: PolicyStatus) -> None:
    """The policy in service."""
    console.print(f"model      {status.model} ({status.num_parameters:,} parameters, encoder {status.encoder})")
    console.print(f"version    {status.version}")
    if status.announcement is not None:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(status.announcement.metrics.items()))
        console.print(f"published  {status.announcement.created_at}, after {status.announcement.step} updates ({metrics})")


def describe_device(device: DeviceDescription) -> str:
    match device.kind:
        case "cuda":
            return f"{device.name} ({device.architecture}, {device.copy_bandwidth_gbs:,.0f} GB/s copy bandwidth measured)"
        case "interpreter":
            return f"{device.name} for {device.architecture}: no GPU is here, every time below is ESTIMATED"
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
        case MeasuredTiming(median_us=median, low_us=low, high_us=high, cold_us=cold, stable=stable):
            noise = "" if stable else ", UNSTABLE"
            return f"{median:.2f} us (95 % {low:.2f} to {high:.2f}; cold cache {cold:.2f}{noise})"
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
        return "never" if count is None else f"after {count:,} products"

    return (
        f"{products(break_even.products_against_best)} against the best baseline, "
        f"{products(break_even.products_against_default)} against the default "
        f"(conversion {break_even.conversion_ms:.1f} ms, tuning {break_even.tuning_s:.1f} s)"
    )


def _show_baselines(console: Console, baselines: Baselines) -> None:
    table = Table("baseline", "time", "preparation", title_justify="left", box=None)
    best = baselines.best_routine().routine
    for routine in sorted(baselines.routines, key=lambda routine: routine.timing.median_us):
        marks = [mark for mark, holds in (("best", routine.routine == best), ("default", routine.routine == baselines.default)) if holds]  # fmt: skip
        name = f"{routine.routine} ({', '.join(marks)})" if marks else routine.routine
        table.add_row(name, describe_timing(routine.timing), f"{routine.preparation_ms:.2f} ms")
    console.print(table)


def _estimate_note(device: DeviceDescription) -> str:
    return " (estimated)" if device.kind == "interpreter" else ""
