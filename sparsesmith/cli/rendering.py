"""Reports for people: the verdict first, the kernel last. Every time is labelled measured or estimated.

Programs, logs and names come from models, compilers and servers: they are shown as they are, never read as markup, and
their control characters are replaced. Lines are left to the terminal to wrap, so that what is copied is what was meant.
"""

from typing import assert_never

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from sparsesmith.cli.columns import columns
from sparsesmith.cli.visible import visible
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import (
    BreakEven,
    EvaluationAnswer,
    FromPolicy,
    InstantKernel,
    KernelReport,
    KnobReport,
    LibraryAnswer,
    PolicyStatus,
    SearchReport,
    TunedAnswer,
    WritingReport,
)
from sparsesmith_proto.kernel import (
    AdverseTiming,
    Baselines,
    Candidate,
    CompileFailed,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    FromFamily,
    MeasuredTiming,
    Mismatch,
    Mutated,
    Origin,
    Outcome,
    Passed,
    ProbeWritten,
    Rejected,
    Repeats,
    Sampled,
    TimedOut,
    Timing,
    ToolCheck,
    UserWritten,
    Workload,
    Written,
)


def show_report(console: Console, report: KernelReport, known: str | None = None) -> None:
    """The whole answer: verdict, what it is about, baselines, search, program.

    `known`: what was measured elsewhere for the same question.
    """
    workload, answer = report.workload, report.answer
    show_line(console, "verdict", verdict(report), style="bold")
    show_line(console, "break-even", describe_break_even(answer.break_even))
    if known is not None:
        show_line(console, "elsewhere", known, style="bold")
    console.print()
    show_line(console, "workload", f"{workload.operation} {workload.element_type}, {_sizes(workload)}")
    if report.num_rows is not None:
        show_line(console, "matrix", f"{report.num_rows:,} x {report.num_cols:,}, {report.nnz:,} nonzeros")
    if workload.values is not None:
        show_line(console, "values", "fixed: a kernel is valid for this matrix's values only")
    if workload.deterministic:
        show_line(console, "bits", "equal for equal inputs, in every run: compared with such routines alone")
    if workload.alpha_beta:
        show_line(console, "graded", "y = alpha A x + beta y")
    show_line(console, "device", describe_device(report.device))
    shown = answer.best if isinstance(answer, TunedAnswer) else answer.closest
    if shown is not None:
        is_answer = isinstance(answer, TunedAnswer)
        show_line(console, "written by" if is_answer else "closest", describe_origin(shown.candidate.origin))
        show_line(console, "outcome", describe_outcome(shown.outcome))
    if report.instant is not None:
        show_line(console, "instant", describe_instant(report.instant))
    _show_search(console, report.search)
    console.print()
    _show_baselines(console, report.baselines)
    if shown is not None:
        _show_program(console, shown.candidate)


def verdict(report: KernelReport) -> str:
    """The answer in one sentence."""
    match report.answer:
        case TunedAnswer(speedup_over_best=over_best, speedup_over_default=over_default):
            faster = f"a kernel, {over_best:.2f}x faster than {_against(report)}"
            default = f"{over_default:.2f}x faster than the default ({report.baselines.default})"
            return f"{_label(report.device)}{faster}, {default}{_beside_a_copy(report.baselines)}"
        case LibraryAnswer(routine=routine, reason=reason):
            if report.workload.pattern is None:
                return f"{_label(report.device)}keep to the task's own program {routine}: {reason}"
            return f"{_label(report.device)}{describe_library(routine, report.device)}: {reason}"


def show_evaluation(console: Console, answer: EvaluationAnswer) -> None:
    """One graded program beside the baselines."""
    outcome = answer.evaluation.outcome
    if isinstance(outcome, Passed):
        speedup = answer.baselines.best_routine().timing.median_us / outcome.timing.median_us
        sentence = f"{speedup:.2f}x the speed of {_against(answer)}"
        show_line(console, "verdict", f"{_label(answer.device)}{sentence}", style="bold")
    show_line(console, "outcome", describe_outcome(outcome))
    if answer.knobs is not None:
        show_line(console, "setting", describe_settings(answer.evaluation.candidate))
        show_line(console, "knobs", describe_knobs(answer.knobs))
    show_line(console, "device", describe_device(answer.device))
    console.print()
    _show_baselines(console, answer.baselines)


def show_policy(console: Console, status: PolicyStatus) -> None:
    """The policy in service."""
    show_line(console, "model", f"{status.model} ({status.num_parameters:,} parameters, encoder {status.encoder})")
    show_line(console, "version", str(status.version))
    if status.announcement is not None:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(status.announcement.metrics.items()))
        published = f"{status.announcement.created_at}, after {status.announcement.step} updates ({metrics})"
        show_line(console, "published", published)
    if status.under_probe is not None:
        show_line(console, "probing", f"version {status.under_probe}: no user is given its samples")
    if status.verdicts:
        newest = status.verdicts[-1]
        decision = newest.decision.replace("_", " ")
        show_line(console, "newest", f"version {newest.version} was {decision} at {newest.decided_at}: {newest.reason}")


def show_line(console: Console, label: str, text: str, style: str = "") -> None:
    """A labelled line. Control characters are replaced."""
    console.print(f"{label:11}{escape(visible(text))}", style=style, highlight=False, soft_wrap=True)


def describe_samples(report: KernelReport) -> str:
    """What became of the policy's programs."""
    search = report.search
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(search.outcomes.items()))
    wrote = (
        f"version {' and '.join(map(str, search.policy_versions))} wrote {search.num_candidates} kernels ({outcomes})"
    )
    best = report.answer.best if isinstance(report.answer, TunedAnswer) else report.answer.closest
    if best is None or not isinstance(best.outcome, Passed):
        return f"{wrote}; none passed"
    speedup = report.baselines.best_routine().timing.median_us / best.outcome.timing.median_us
    against = f"{speedup:.2f}x the speed of {_against(report)}"
    return f"{_label(report.device)}{wrote}; the fastest has {against}"


def describe_device(device: DeviceDescription) -> str:
    match device.kind:
        case "cuda":
            bandwidth = f"{device.copy_bandwidth_gbs:,.0f} GB/s copy bandwidth measured"
            return f"{device.name} ({device.architecture}, {bandwidth})"
        case "interpreter":
            return f"{device.name} for {device.architecture}: no GPU is here, every time is ESTIMATED"
    assert_never(device.kind)


def describe_library(routine: str, device: DeviceDescription) -> str:
    match device.kind:
        case "cuda":
            return f"use the library's own routine {routine}"
        case "interpreter":
            return f"keep to the library; without a GPU {routine} stands for it"
    assert_never(device.kind)


def describe_settings(candidate: Candidate) -> str:
    """As options are written: `BLOCK=128 LOAD=__ldg`."""
    return " ".join(f"{name}={value}" for name, value in candidate.settings.items())


def describe_knobs(knobs: KnobReport) -> str:
    """What was tried of them."""
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(knobs.outcomes.items()))
    settings = f"{knobs.num_settings:,} settings"
    if knobs.num_listed < knobs.num_settings:
        settings = f"{knobs.num_listed:,} settings, chosen at random from {knobs.num_settings:,},"
    return f"{knobs.num_graded} of {settings} graded in {knobs.seconds:.1f} s ({outcomes})"


def describe_origin(origin: Origin | FromPolicy) -> str:
    match origin:
        case Sampled(first_version=first, last_version=last) | FromPolicy(first_version=first, last_version=last):
            versions = f"version {first}" if first == last else f"versions {first} to {last}"
            return (
                f"the policy, {versions}" if origin.parent is None else f"the policy, {versions}, from {origin.parent}"
            )
        case FromFamily(family=family, parameters=parameters):
            shown = " ".join(f"{name}={value}" for name, value in parameters.items())
            return f"kernel family {family} {shown}"
        case Mutated(deed=deed, parent=parent):
            return f"candidate {parent}, changed: {deed}"
        case Written(model=model, parent=None):
            return f"{model}, from the task's words"
        case Written(model=model, parent=parent):
            return f"{model}, from candidate {parent}"
        case UserWritten():
            return "you"
        case ProbeWritten(version=version):
            return f"the policy under probe, version {version}"
    assert_never(origin)


def describe_timing(timing: Timing) -> str:
    match timing:
        case MeasuredTiming(median_us=median, low_us=low, high_us=high, cold_us=cold):
            interval = f"95 % {low:.2f} to {high:.2f}; cold cache {cold:.2f}"
            return f"{median:.2f} us measured ({interval}), {timing.noise_verdict()}"
        case EstimatedTiming(median_us=median, traffic_model=model):
            return f"{median:.2f} us estimated by traffic model {model}"
    assert_never(timing)


def _adverse(adverse: AdverseTiming | None) -> str:
    return "" if adverse is None else f"; on {adverse.draw} inputs {adverse.timing.median_us:.2f} us"


def describe_outcome(outcome: Outcome) -> str:
    match outcome:
        case Passed(timing=timing, resources=resources, storage_format=format_, num_inputs=inputs, worst_error=worst):
            checked = f"{_repeats(outcome.repeats)}{_sanitized(outcome.sanitized)}"
            times = f"{describe_timing(timing)}{_adverse(outcome.adverse)}"
            return (
                f"passed on {inputs} inputs (worst error {worst:.1e} of |A||x|){checked}, "
                f"{times}, format {format_}, {resources.registers} registers"
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


def show_instant(console: Console, job_id: str, kernel: InstantKernel) -> None:
    """A kernel that is there before the search."""
    show_line(console, "instant", describe_instant(kernel), style="bold")
    show_line(console, "job", f"{job_id}: the search goes on; sparsesmith watch {job_id} follows it")
    show_line(console, "device", describe_device(kernel.device))
    _show_program(console, kernel.candidate)


def describe_instant(kernel: InstantKernel) -> str:
    """What was handed out, when, by whose choice, and what the full protocol says of it."""
    expected = f"expected to take {kernel.expected.median_us:.2f} us (estimated)"
    found = f"{describe_origin(kernel.candidate.origin)}, after {1000 * kernel.tuning_s:.0f} ms by {kernel.chosen_by}"
    match kernel.state:
        case "checked":
            return f"{found}; {expected}; checked on one input, the full protocol follows and withdraws it if it fails"
        case "withdrawn":
            return f"{found}; WITHDRAWN: {kernel.withdrawn_because}"
        case "confirmed":
            passed, even = kernel.passed, kernel.break_even
            took = expected if passed is None else describe_timing(passed.timing)
            return f"{found}; confirmed: {took}" + ("" if even is None else f"; {describe_break_even(even)}")
    assert_never(kernel.state)


def _repeats(repeats: Repeats | None) -> str:
    if repeats is None:
        return ""
    contexts = "one context" if repeats.contexts == 1 else f"{repeats.contexts} contexts"
    return f", equal bits in {repeats.runs} runs in {contexts}"


def _sanitized(checks: tuple[ToolCheck, ...]) -> str:
    """What compute-sanitizer said of a winner; nothing of a program that it was not asked about."""
    if not checks:
        return ""
    return f"; compute-sanitizer: {', '.join(f'{check.tool} {check.describe()}' for check in checks)}"


def describe_break_even(break_even: BreakEven) -> str:
    def products(count: int | None) -> str:
        return "never repaid" if count is None else f"repaid after {count:,} products"

    note = " (estimated)" if break_even.kind == "estimated" else ""
    instant = break_even.products_against_instant
    beside = "" if instant is None else f", {products(instant)} against the instant kernel"
    return (
        f"{products(break_even.products_against_best)} against the best baseline, "
        f"{products(break_even.products_against_default)} against the default{beside}{note}; "
        f"conversion {break_even.conversion_ms:.1f} ms, tuning {break_even.tuning_s:.1f} s"
    )


def describe_writing(writing: WritingReport) -> str:
    """What a model's answers cost, and what was wrong with them."""
    tokens = f"{writing.prompt_tokens:,} tokens read, {writing.completion_tokens:,} written"
    told = f"{writing.model}: {writing.answers} answers in {writing.seconds:.1f} s ({tokens})"
    if writing.repairs:
        told += f"; {writing.repaired} of {writing.repairs} repairs passed"
    if writing.failures:
        told += "; no answer: " + ", ".join(f"{count} {reason}" for reason, count in sorted(writing.failures.items()))
    return told


def _show_search(console: Console, search: SearchReport) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(search.outcomes.items()))
    tried = f"{search.strategy}: {search.num_candidates} candidates in {search.seconds:.1f} s"
    show_line(console, "search", f"{tried}, the first graded after {search.first_graded_s:.1f} s ({outcomes})")
    for source in search.sources:
        if source.writing is not None:
            show_line(console, source.source, describe_writing(source.writing))
    if search.policy_versions:
        show_line(console, "policy", f"versions {', '.join(map(str, search.policy_versions))}")


def _show_program(console: Console, candidate: Candidate) -> None:
    """As it is: no line is wrapped or cut, whatever the width."""
    text = visible(extract_program(candidate.program)).strip()
    console.print()
    console.print(Syntax("", "cuda", background_color="default").highlight(text), soft_wrap=True, end="")


def _show_baselines(console: Console, baselines: Baselines) -> None:
    best = baselines.best_routine()
    rows = []
    for routine in sorted(baselines.routines, key=lambda routine: routine.timing.median_us):
        held = {
            "best": routine.routine == best.routine,
            "default": routine.routine == baselines.default,
            "needs a copy of A^T": routine.needs_copy,
        }
        marks = ", ".join(mark for mark, holds in held.items() if holds)
        rows.append((routine.routine, marks, *_time_cells(routine.timing), f"{routine.preparation_ms:.2f}"))
    numbers = (f"us {best.timing.kind}", "95 % interval", "cold us", "noise", "preparation ms")
    console.out(columns(("baseline", "", *numbers), rows, right=numbers), highlight=False)
    for routine in baselines.routines:
        if routine.adverse is not None:
            console.out(f"{routine.routine}{_adverse(routine.adverse)}", highlight=False)


def _time_cells(timing: Timing) -> tuple[str, str, str, str]:
    match timing:
        case MeasuredTiming(median_us=median, low_us=low, high_us=high, cold_us=cold, stable=stable):
            return f"{median:.2f}", f"{low:.2f} to {high:.2f}", f"{cold:.2f}", "steady" if stable else "UNSTEADY"
        case EstimatedTiming(median_us=median):
            return f"{median:.2f}", "", "", ""
    assert_never(timing)


def _sizes(workload: Workload) -> str:
    axes = [f"{name}={size:,}" for name, size in workload.axes.items()]
    if workload.pattern is not None:
        axes.insert(0, "one column" if workload.num_dense_cols == 1 else f"{workload.num_dense_cols} columns")
    return ", ".join(axes)


def _label(device: DeviceDescription) -> str:
    return "ESTIMATED, for no GPU is here: " if device.kind == "interpreter" else ""


def _beside_a_copy(baselines: Baselines) -> str:
    """What the library takes that may copy A^T, where the kernel was held against what reads A as it is stored."""
    copied = baselines.best_on_a_copy()
    if copied is None or copied == baselines.best_routine():
        return ""
    return f"; on a copy of A^T the library takes {copied.timing.median_us:.2f} us ({copied.routine})"


def _against(answer: KernelReport | EvaluationAnswer) -> str:
    """What the best baseline is, by name."""
    routine, device = answer.baselines.best_routine().routine, answer.device
    if answer.workload.pattern is None:
        return f"the task's own program ({routine})"
    match device.kind:
        case "cuda":
            return f"the library's fastest routine ({routine})"
        case "interpreter":
            return f"the fastest plain kernel, which stands in for the library ({routine})"
    assert_never(device.kind)
