"""The section on the judge: hostile programs, an attacker that adapts, good programs, and what the checks cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.report.evidence import shown
from benchmarks.report.results import Json

INTRO = (
    "Hostile programs are graded as any candidate is, then in finals, each beside an honest twin. The attacker makes programs by a grammar and mutates "
    "them; one that passes although it does less than its twin, is undefined, or is faster than 97 % of the twin's time counts as accepted."
)
MOST_NAMES = 12
"""Of programs, in one line."""


def judging_section(results: Iterable[Json]) -> list[str]:
    """Empty where nothing of it is measured."""
    known = list(results)
    lines = [line for kind, render in SHOWN.items() for each in _of(known, kind) for line in (*render(each), "")]
    return ["## The judge", "", INTRO, "", *lines] if lines else []


def _of(results: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in results if each.get("kind") == kind]


def _judged(result: Json) -> list[str]:
    """Programs of files and of the corpus, and two versions of the evaluator in turns."""
    lines = [f"### Hostile programs and two versions of the evaluator, {_origin(result)}"]
    if "summary" in result:
        summary = result["summary"]
        lines += ["", f"{summary['programs']} programs, honest ones among them: {_judged_wrongly(summary)}."]
    for part in ("costs", "searches"):
        if part in result:
            told = result[part]
            rates = ", ".join(f"{version} {_shown(rate)}" for version, rate in told["a_second"].items())
            lines += [
                "",
                f"{part}: candidates a second, old at {result['old']}: {rates}; {told['share_of_old']:.1%} of the old's.",
            ]
    if "costs" in result:
        lines += ["", *_cost_lines(result["costs"])]
    return lines


def _judged_wrongly(summary: Json) -> str:
    otherwise, faster = summary["otherwise"], summary["faster_than_honest"]
    if not otherwise:
        return "all came out as they should"
    return f"{len(otherwise)} otherwise than they should ({_names(otherwise)}), {len(faster)} of them faster than honest work"


def _cost_lines(costs: Json) -> list[str]:
    times = costs["times"]
    lines = [
        f"Times of honest programs on {times['num_matrices']} matrices, new over old: {times['brief_geometric_mean']:.4f} brief, "
        f"{times['final_geometric_mean']:.4f} in finals.",
        "",
        "| version | candidates a second without crashes | where 15 % crash | seconds a crash |",
        "|---|---|---|---|",
    ]
    for version, turns in costs["crashes"].items():
        cells = [
            _shown([turn[key] for turn in turns]) for key in ("a_second_without", "a_second_with", "seconds_a_crash")
        ]
        lines.append(f"| {version} | {' | '.join(cells)} |")
    return lines


def _attacked(result: Json) -> list[str]:
    stages = ", ".join(
        f"{count:,} {stage}" for stage, count in sorted(result["stages"].items(), key=lambda each: -each[1])
    )
    lines = [
        f"### The attacker, {_origin(result)}",
        "",
        f"{result['num_attempts']:,} attempts: {stages}. Accepted: **{result['num_accepted']:,}**.",
    ]
    accepted = [each["name"] for each in result["passed"] if "program" in each]
    return [*lines, "", f"Accepted: {_names(accepted)}."] if accepted else lines


def _good(result: Json) -> list[str]:
    refused = len(result["refused"])
    return [
        f"### Good programs, {_origin(result)}",
        "",
        f"{result['num_programs']:,} programs over {result['num_patterns']} random patterns; wrongly refused: **{refused}**.",
    ]


def _crashes(result: Json) -> list[str]:
    lines = [
        f"### What a crash costs a batch, {_origin(result)}",
        "",
        f"{result['candidates']} candidates, every seventh ends its process; {result['nnz']:,} nonzeros. A spare process: "
        + ", ".join(f"{step} {told['seconds']:.2f} s" for step, told in result["spare"].items())
        + ".",
        "",
        "| spares | seconds a crash, first batch | second batch |",
        "|---|---|---|",
    ]
    return lines + [f"| {most} | {' | '.join(map(str, costs))} |" for most, costs in result["seconds_a_crash"].items()]


def _regraded(result: Json) -> list[str]:
    """Winners of committed suites under the judge of now."""
    summary = result["summary"]
    refused = summary["not_passed"]
    lines = [
        f"### Winners of committed suites, graded again, {_origin(result)}",
        "",
        f"{summary['winners']:,} winners of {len(result['suites'])} suites, {result['asked']:,} asked for; not passed any more: "
        f"**{len(refused)}**{f' ({_names(refused)})' if refused else ''}.",
    ]
    if not summary["compared"]:
        return [*lines, "", "They won on another kind of GPU, so that times are not compared."]
    moved = f"{summary['time_changed']} of {summary['compared']} by more than 5 %"
    return [*lines, "", f"Time in a final over that of the file: {summary['geometric_mean']:.4f} in the mean; {moved}."]


SHOWN: Mapping[str, Callable[[Json], list[str]]] = {
    "judge": _judged,
    "attacker": _attacked,
    "good_programs": _good,
    "crash_costs": _crashes,
    "regraded": _regraded,
}
"""By kind of result file, in the order of the section."""


def _origin(result: Json) -> str:
    date = result.get("date") or result.get("finished_at") or ""
    return ", ".join(part for part in (result["device"]["name"], f"commit {result['commit'][:8]}", date[:10]) if part)


def _names(names: Sequence[str]) -> str:
    counted = {name: names.count(name) for name in sorted(set(names))}
    told = [f"{name} ({count})" if count > 1 else name for name, count in list(counted.items())[:MOST_NAMES]]
    left = len(counted) - len(told)
    return ", ".join(told) + (f" and {left} more" if left else "")


def _shown(values: float | Sequence[float]) -> str:
    return " / ".join(map(shown, values if isinstance(values, Sequence) else [values]))
