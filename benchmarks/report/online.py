"""The section on courses of online learning: arms beside their start, at equal workloads."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
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
VERSIONS_INTRO = (
    "Of each version its canary: median and largest over a course's versions. Gaps are between engine and trainer under the published weights: mean "
    "absolute difference over tokens with an entropy above 0.1 nat, and the absolute sum of a program's differences (mean over programs). Accepted to "
    "first token: from the end of the canary until a sample had a token of the new version. A GPU counts as busy where a kernel of anybody's ran in "
    "the driver's last sample period (1/6 to 1 s): what is idle within these is not seen."
)
PARTS = ("generator_waits", "evaluators_wait", "trainer_waits")


def online_section(results: Iterable[Json]) -> list[str]:
    """Of courses on a GPU that were judged twice; empty without any."""
    courses = [
        each
        for each in results
        if each.get("kind") == "online" and each["device"]["kind"] == "cuda" and each["against_start"]
    ]
    if not courses:
        return []
    versions = version_table(courses)
    told = ["", VERSIONS_INTRO, "", *versions] if versions else []
    return ["## Online learning", "", INTRO, "", *course_table(courses), *told, ""]


def version_table(courses: Sequence[Json]) -> list[str]:
    """What was measured of each version, an arm and seed a line; empty where no course kept it."""
    kept = [each for each in courses if each.get("vetted")]
    lines = [
        "| arm | seed | versions accepted, refused | nats a telling token | nats a program | canary, s | users waited for it, s | engine stood still, s "
        "| accepted to first token, s | jobs lost | GPU without a kernel |",
        "|---" * 11 + "|",
    ]
    for each in sorted(kept, key=lambda course: (course["arm"], course["seed"])):
        told, jobs = each["vetted"], each["jobs"]
        idle = [f"{1 - share:.0%}" for name, share in sorted(each["shares"].items()) if name.startswith("gpu_")]
        cells = [
            each["arm"],
            str(each["seed"]),
            f"{each['versions'].get('accepted', 0)}, {each['versions'].get('refused', 0)}",
            *(
                _middle_and_most(told, name, digits)
                for name, digits in (
                    ("logprob_gap", 4),
                    ("logprob_gap_program", 3),
                    ("canary_s", 2),
                    ("waited_s", 2),
                    ("paused_s", 2),
                    ("first_token_s", 2),
                )
            ),
            f"{jobs['lost']} of {jobs['posted']}",
            ", ".join(idle) or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines if kept else []


def _middle_and_most(versions: Sequence[Mapping[str, Any]], name: str, digits: int) -> str:
    """Median and largest over the versions that have it."""
    values = [float(each[name]) for each in versions if each.get(name) is not None]
    return f"{median(values):.{digits}f}, {max(values):.{digits}f}" if values else "-"


def learning_kills_section(results: Iterable[Json]) -> list[str]:
    """What became of reward records while processes were killed."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "learning-kills":
            continue
        records, kills = result["records"], ", ".join(f"{kind} {count}" for kind, count in result["kills"].items())
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in records["dropped"].items()) or "none"
        versions = ", ".join(f"{count} {decision}" for decision, count in result["versions"].items()) or "none"
        lines += [
            "## Reward records while processes are killed",
            "",
            f"{result['date']}, commit {result['commit']}; {result['machine']}; the toy course. `{result['command']}`.",
            "",
            f"- killed with SIGKILL: {kills}; the trainer {result['trainer_killed_at_a_checkpoint']} times as it wrote a checkpoint",
            f"- updates: {result['updates']['in all']}, {result['updates']['while killing']} of them while processes were killed; versions: {versions}",
            f"- records published: {records['published']:,}; used in an update: {records['used']:,}; dropped by reason: {dropped}; waiting at the "
            f"end: {records['waiting']}",
            f"- came again though a checkpoint held them, and were not used again: {records['came_again']:,}",
            f"- lost: {records['lost']}; used twice: {records['used_twice']}; graded samples without a record: {records['graded_without_record']}",
            "",
        ]
    return lines


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
