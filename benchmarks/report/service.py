"""The stack under load and kills, the autoscaler played against the real queue, and the page in a browser."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from benchmarks.report.results import Json
from benchmarks.service.slopes import FLAT_MIB_A_MINUTE, Series, series_until, slope_of

HISTORY_JOBS = 10_000
"""Of a server, by default (`history_jobs`)."""
KIB_A_MIB = 1024
NOT_TOLD = "not told"
NOT_FLAT = "What is not flat, or not told to be (what a process holds after days of work is not shown by runs in which it is killed):"


def soak_lines(results: Sequence[Json]) -> list[str]:
    """All runs together, then each one."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "soak" or "runs" not in result:
            continue
        lines += ["## Answers while processes are killed", "", *_soak_totals(result["totals"]), ""]
        for run in result["runs"]:
            lines += _soak_run(run)
    return lines


def _soak_totals(total: Json) -> list[str]:
    kills = _counts(total["kills_by_kind"])
    lines = [
        f"- {total['runs']} runs, {total['kills']:,} processes killed with SIGKILL: {kills}",
        f"- jobs accepted: {total['jobs']:,}; {_counts(total['ended'])}; large uploads: {total['large_uploads']:,}",
        f"- ended once, by their streams of events: {total['ended_once']:,}; with the same answer after the last "
        f"kills: {total['same_after_the_end']:,}; wrong in any way: {total['wrong']:,}",
        f"- requests that nobody answered: {total['unreachable']:,}; asked to come again (503): "
        f"{total['asked_to_come_again']:,}",
    ]
    with_calm, with_retry = (total["runs_with"][name] for name in ("calm", "retry_after"))
    if with_retry:
        lines.append(
            f"- 503 without Retry-After, in the {with_retry} runs that looked: {total['without_retry_after']:,}"
        )
    if with_calm:
        lines.append(
            f"- answers of a calm run, asked for again while processes were killed, in the {with_calm} runs that did: "
            f"{total['calm_equal']:,} equal, {total['calm_unequal']:,} not"
        )
    return lines


def _soak_run(run: Json) -> list[str]:
    cut_off = "" if run.get("phase", "done") == "done" else f" Cut off in its {run['phase']}."
    return [
        f"{run['date']}, commit {run['commit']}; {run['machine']}. `{run['command']}`.{cut_off}",
        "",
        f"- killed: {_counts(run['kills'])}",
        f"- jobs: {run['jobs']:,}; {_counts(run['ended'])}",
        *(f"- failed, {count}: {reason}" for reason, count in run["failures"].items()),
        *_tracebacks(run["tracebacks_in_logs"]),
        *(_footprint_lines(run) if "footprint" in run else ()),  # Earlier runs have two samples.
        "",
    ]


def _footprint_lines(run: Json) -> list[str]:
    """A row a kind, judged by the storm alone; then why what grows does."""
    footprint = run["footprint"]
    seconds = footprint["sampled_s"]
    # A run that was cut off in its storm has no other time.
    storm_s = run.get("storm_s") or max(seconds, default=0.0)
    lines = [
        "",
        f"Memory (an evaluator: mean of those that ran; children included) and disk, {len(seconds)} samples over "
        f"{max(seconds, default=0):,.0f} s. Slope, +- a standard error: last two thirds of the first {storm_s:,.0f} s, in which "
        "processes were killed; behind them jobs end, and processes that are killed no more grow as old as they like. Not told: neither growth of "
        f"{FLAT_MIB_A_MINUTE} MiB a minute nor its absence, as the error is larger.",
        "",
        "| what | first, MiB | end of the kills | last | least | most | MiB a minute | flat |",
        "|---" * 8 + "|",
    ]
    reasons = []
    for kind, mib in footprint["mib"].items():
        held, storm = [each for each in mib if each is not None], series_until(seconds, mib, storm_s)
        slope = slope_of(storm)
        told, flat = "-", "-"
        if slope is not None:
            told, flat = f"{slope['mib_a_minute']:+.2f} +- {slope['standard_error']:.2f}", _flat(slope)
        at_end = f"{storm[-1][1]:,.0f}" if storm else "-"
        lines.append(
            f"| {kind} | {held[0]:,.0f} | {at_end} | {held[-1]:,.0f} | {min(held):,.0f} | {max(held):,.0f} | {told} | {flat} |"
        )
        grew_later = bool(storm) and kind.startswith("disk") and held[-1] > 2 * storm[-1][1] + 1
        if grew_later or flat in ("no", NOT_TOLD):
            reasons.append(f"- {kind}: {_why(kind, held, storm, run)}")
    return [*lines, "", *([NOT_FLAT, "", *reasons] if reasons else ())]


def _flat(slope: Mapping[str, float | bool]) -> str:
    """Where the error is large, a slope that is not told from 0 is not told from growth either."""
    if not slope["is_flat"]:
        return "no"
    return "yes" if slope["mib_a_minute"] + 2 * slope["standard_error"] <= FLAT_MIB_A_MINUTE else NOT_TOLD


def _why(kind: str, held: Sequence[float], storm: Series, run: Json) -> str:
    """Why a kind holds more in the end than in the beginning, and what bounds it."""
    grown_kib = (held[-1] - held[0]) * KIB_A_MIB
    match kind:
        case "valkey":
            each = grown_kib / max(1, run["jobs"])
            return (
                f"{each:.0f} KiB for each of the {run['jobs']:,} jobs, all kept with matrices, candidates and answers. The soak keeps "
                f"every job; a server keeps `history_jobs` ({HISTORY_JOBS:,}) for `history_days` (30), "
                f"{each * HISTORY_JOBS / KIB_A_MIB:,.0f} MiB of such jobs, and of matrices `max_stored_bytes` at most"
            )
        case "disk valkey":
            falls = sum(after < 0.8 * before for before, after in pairwise(held))
            return (
                f"the append-only file of what memory holds. Valkey writes it anew where it has doubled since (from 64 MiB on), here {falls} "
                "times; so it is bounded by what memory holds"
            )
        case "disk logs":
            kills = sum(run["kills"].values())
            return (
                f"starts and exceptions of processes that are killed, {grown_kib / max(1, kills):.0f} KiB a kill. Containers keep 100 MB each; "
                "the local stack puts a log beyond 20 MiB aside when it starts its service again, in the place of the one before"
            )
        case "disk trainer":
            return "the newest checkpoints, `keep_checkpoints` (2) of them; while it was killed no trainer lived until its first"
        case "evaluator" | "trainer" | "generator" | "engine":
            kills = sum(count for name, count in run["kills"].items() if name.partition("-")[0] == kind)
            processes = run["evaluators"] if kind == "evaluator" else 1
            middle = storm[-1][0] / 2
            halves = [[mib for second, mib in storm if (second <= middle) is is_first] for is_first in (True, False)]
            first, second = (max(half, default=held[0]) for half in halves)
            return (
                f"{kills} kills of {processes}: one lives {run['storm_s'] * processes / max(1, kills):.0f} s in the mean, and the series follows "
                f"ages and jobs. Most in the first half of the kills {first:,.0f} MiB, in the second {second:,.0f}; in the first and the last "
                f"sample, where none is killed, {held[0]:,.0f} and {held[-1]:,.0f}"
            )
    return "no reason is known"


def _counts(by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in by_name.items())


def _tracebacks(found: int | dict[str, int]) -> list[str]:
    """Earlier runs only counted them."""
    if isinstance(found, int):
        return [f"- tracebacks in the logs: {found:,}"]
    return [f"- in the log of {said}: {count:,} times" for said, count in found.items()]


def autoscaler_lines(results: Sequence[Json]) -> list[str]:
    """What became of the jobs."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "autoscaler":
            continue
        lines += [
            "## Jobs while evaluators come and go",
            "",
            f"{result['date']}, commit {result['commit']}; {result['machine']}{_load(result)}. `{result['command']}`.",
            "",
            f"- events: {_counts(result['events'])}; at most {result['most_workers']} workers, {len(result['kinds'])} kinds of GPU, "
            f"{result['seconds']:.0f} s",
            f"- jobs: {result['jobs']:,}, {result['named']:,} of them for one kind; {_counts(result['ended'])}; answered once "
            f"{result['answered_once']:,}, twice {result['answered_twice']:,}; begun again {result['begun_again']:,}",
            f"- searches: {result['searches']:,}; on two kinds {result['searches_on_two_kinds']:,}, jobs on a wrong kind "
            f"{result['on_a_wrong_kind']:,}",
            "",
        ]
    return lines


def page_lines(results: Sequence[Json]) -> list[str]:
    """Aims: a second from an upload to the spy plot, 200 ms from an event to the screen."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "page":
            continue
        shown = result["event_to_pixel"]
        lines += [
            "## The page",
            "",
            f"{result['date']}, commit {result['commit']}; {result['machine']}, {result['browser']}{_load(result)}; {result['runs']} runs. "
            f"`{result['command']}`. Aims: an upload of a million nonzeros is a spy plot after 1 s, an event on the screen after 200 ms.",
            "",
            "| what | median | worst |",
            "|---|---|---|",
            *(
                f"| {row['file']}, {row['file_bytes'] / 1e6:.1f} MB, to the spy plot | {row['median_s']:.2f} s | {row['worst_s']:.2f} s |"
                for row in result["uploads"]
            ),
            f"| an event to the screen | {shown['median_ms']:.0f} ms | {shown['worst_ms']:.0f} ms |",
            "",
        ]
    return lines


def _load(result: Json) -> str:
    """Earlier files say nothing of it."""
    load = result.get("load_average")
    return "" if load is None else f", load average {load['before']:.1f} before and {load['after']:.1f} after"
