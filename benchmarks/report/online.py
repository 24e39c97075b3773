"""The section on courses of online learning: arms beside their start, at equal workloads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.report.results import Json

INTRO = (
    "A policy learns on train-side matrices while the stack serves, and is judged by fresh samples on the core validation matrices (spmv "
    "float32 and float64, spmm with 32 columns; brief and final times as jobs of samples give them) before and after. A sample that "
    "fails counts as the library's speed. Intervals: 95 % over workloads, of paired differences. One judgement of the same policy differs from "
    "another by what samples and times differ. Train side: the last group of a workload against its first; an upper bound, since workloads are "
    "asked again where the samples of a group differed. Room: the best of n over single samples at the start, in the mean of workloads, which is "
    "what a policy could gain by always writing the best that it writes now."
)
PARTS = ("generator_waits", "evaluators_wait", "trainer_waits")


def online_section(results: Iterable[Json]) -> list[str]:
    """Of courses on a GPU that were judged twice; empty without any."""
    courses = [
        each
        for each in results
        if each.get("kind") == "online" and each["device"]["kind"] == "cuda" and each["against_start"]
    ]
    return ["## Online learning", "", INTRO, "", *course_table(courses), ""] if courses else []


def course_table(courses: Sequence[Json]) -> list[str]:
    """An arm and seed a line."""
    lines = [
        "| arm | seed | seconds of learning | updates | samples graded, used, oldest | pass@1 | single samples over the start | room | best of n over the start "
        "| different of n | single samples, train side, workloads asked again | generator, evaluators, trainer wait | commit |",
        "|---" * 13 + "|",
    ]
    for each in sorted(courses, key=lambda course: (course["arm"], course["seed"])):
        change, first, last = each["against_start"], each["judgements"][0]["figures"], each["judgements"][-1]["figures"]
        waits = ", ".join(f"{each['shares'].get(part, 0):.0%}" for part in PARTS)
        cells = [
            each["arm"],
            str(each["seed"]),
            f"{each['learned_s']:.0f}",
            str(len(each["updates"])),
            f"{each['used']:,}, {each['used_share']:.0%}, {each['oldest_used']:.0f} versions",
            f"{first['pass_at_1']:.1%} to {last['pass_at_1']:.1%}",
            _ratio(change["log_speed"]),
            f"{2 ** (first['best_of_n'] - first['log_speed']):.3f}x",
            _ratio(change["best_of_n"]),
            f"{first['different']:.1f} to {last['different']:.1f}",
            _asked_again(each.get("asked_again", {})),
            waits,
            each["commit"][:8],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _asked_again(told: Mapping[str, Any]) -> str:
    return f"{_ratio(told['log_speeds'])}, {told['again']} of {told['workloads']}" if "log_speeds" in told else "-"


def _ratio(change: Mapping[str, float]) -> str:
    """Of speeds, from binary logarithms."""
    mean, low, high = (2 ** change[name] for name in ("mean", "low", "high"))
    return f"{mean:.3f}x ({low:.3f} to {high:.3f})"
