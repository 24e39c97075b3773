"""The section on courses of online learning: arms beside their start, at equal workloads."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report.intervals import RESAMPLES
from benchmarks.report.results import SHIPPED, Json, policy_of

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
SEEDS_INTRO = (
    "Courses that were judged once, when their seconds were over, an arm a line. They are compared with pooled starts: judgements of the shipped policy (courses of the "
    "arm start, which learn nothing, and of those that were judged before they learned) of the same commit on the same device. Of each workload that all of a comparison's courses have, the mean over an arm's seeds less the mean over "
    "the start's; then the mean over workloads. PPO and RLOO over an arm likewise: of the same seconds and settings. Intervals: 95 %, by a bootstrap that draws workloads, and of either side "
    "its seeds; a draw of three seeds is narrower than what three more would show, and one seed's interval is of workloads alone. Samples graded a second: those that were "
    "graded before the seconds were over. Such a course learns on a stack that no judgement has warmed up. A workload on which two starts lie more than a doubling apart is left "
    "out of all, and named: one wrong time of a program that most samples are would weigh more than what was learned."
)
GPUS_INTRO = (
    "Courses on several GPUs of one machine, the trainer on another than the generator, evaluators on each: samples that were graded in their first seconds, beside "
    "courses on one GPU of the same commit and device, in the mean."
)
POLICIES_INTRO = (
    "Two policies that learned nothing online, judged alike: fresh samples on the core validation matrices (spmv float32 and float64, spmm with 32 columns). Intervals: 95 % over "
    "workloads, and judgements of either."
)
KINDS_BEFORE, MATRICES_BEFORE = 3, 150
"""Kinds of lessons of courses that did not keep them, and of how many matrices."""
PARTS = ("generator_waits", "evaluators_wait", "trainer_waits")


def online_section(results: Iterable[Json]) -> list[str]:
    """Of courses on a GPU that were judged; empty without any."""
    results = list(results)
    courses = _on_gpus(results)
    tables = {
        INTRO: course_table(courses),
        SEEDS_INTRO: seed_table(courses),
        POLICIES_INTRO: policies_table(results),
        GPUS_INTRO: gpus_table(courses),
        VERSIONS_INTRO: version_table([each for each in courses if each["judged"]]),
    }
    told = [line for intro, lines in tables.items() if lines for line in (intro, "", *lines, "")]
    return ["## Online learning", "", *told] if told else []


def policies_table(results: Iterable[Json]) -> list[str]:
    """Of each comparison a line for either policy and one for their difference; empty without any."""
    lines = [
        "| policy | judged | pass@1 | single samples over the library | best of n | different of n | commit, device |",
        "|---" * 7 + "|",
    ]
    for each in results:
        if each.get("kind") != "policies":
            continue
        lines += [
            _policy_line(f"{each['name']}: {side}", each[side], each["device"]["name"]) for side in ("before", "after")
        ]
        change = each["change"]
        cells = [
            "after over before",
            "",
            f"{_difference(change['pass_at_1'], 100)} points",
            _ratio(change["log_speed"]),
            _ratio(change["best_of_n"]),
            _difference(change["different"], 1),
            "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def _policy_line(name: str, judgements: Sequence[Json], device: str) -> str:
    def mean(figure: str) -> float:
        return fmean(each["figures"][figure] for each in judgements)

    cells = [
        name,
        str(len(judgements)),
        f"{mean('pass_at_1'):.1%}",
        f"{2 ** mean('log_speed'):.3f}x",
        f"{2 ** mean('best_of_n'):.3f}x",
        f"{mean('different'):.1f}",
        ", ".join((*dict.fromkeys(each["commit"][:8] for each in judgements), device)),
    ]
    return f"| {' | '.join(cells)} |"


def _difference(change: Mapping[str, float], unit: float) -> str:
    mean, low, high = (unit * change[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def gpus_table(courses: Iterable[Json]) -> list[str]:
    """A course on several GPUs a line, where one on a single one was made beside it; empty without any."""
    lines = [
        "| arm | GPUs | update | evaluators | seconds | samples graded a second | on one GPU | courses | times | commit, device |",
        "|---" * 10 + "|",
    ]
    known = [each for each in courses if each.get("graded_within")]
    for each in known:
        ones = [one for one in known if _place(one) == _place(each) and _gpus_of(one) == 1]
        if _gpus_of(each) == 1 or not ones:
            continue
        seconds = max(set.intersection(*(set(one["graded_within"]) for one in (each, *ones))), key=int)
        own, theirs = each["graded_within"][seconds], fmean(one["graded_within"][seconds] for one in ones)
        group, groups, _ = each["course"]["batch"]
        cells = [
            each["arm"],
            str(_gpus_of(each)),
            f"{groups} x {group}",
            str(each["evaluators"]),
            seconds,
            f"{own / int(seconds):.1f}",
            f"{theirs / int(seconds):.1f}",
            str(len(ones)),
            f"{own / theirs:.2f}x",
            ", ".join(_place(each)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def _gpus_of(course: Json) -> int:
    count: int = round(course["gpu_seconds"] / course["learned_s"])
    return count


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
            _arm_of(each),
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


def _arm_of(course: Json) -> str:
    """And where it began, if that is not the policy that ships."""
    policy = policy_of(course)
    return str(course["arm"] if policy == SHIPPED else f"{course['arm']}, from {policy}")


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
    """An arm and seed a line, of courses that were judged at their start too; empty without any."""
    known = [each for each in courses if each["against_start"]]
    lines = [
        "| arm | seed | seconds of learning | updates | samples graded, used, oldest | pass@1 | single samples over the start | room | best of n over the start "
        "| different of n | single samples, train side, workloads asked again | generator, evaluators, trainer wait | commit |",
        "|---" * 13 + "|",
    ]
    for each in sorted(known, key=lambda course: (course["arm"], course["seed"])):
        change, first, last = each["against_start"], each["judgements"][0]["figures"], each["judgements"][-1]["figures"]
        waits = ", ".join(f"{each['shares'].get(part, 0):.0%}" for part in PARTS)
        cells = [
            _arm_of(each),
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
    return lines if known else []


def seed_table(courses: Sequence[Json]) -> list[str]:
    """An arm a line, of courses that were judged once; empty without any."""
    arms: defaultdict[tuple[Made, str], list[Json]] = defaultdict(list)
    steady = _steady(courses)
    starts = _starts_of(steady)
    for each in steady:
        arms[_made(each), each["arm"]].append(each)
    lines = [
        "| arm | seeds | seconds of learning | samples graded a second | pass@1 | single samples over the start | best of n over the start | different of n "
        "| PPO's single samples over its | RLOO's | settings | commit, device |",
        "|---" * 12 + "|",
    ]
    for (made, arm), seeds in sorted(arms.items()):
        start = [] if arm == "start" else starts[made[:2]]
        others = {name: [] if arm == name else arms.get((made, name), []) for name in ("ppo", "rloo")}
        cells = [
            arm,
            f"{len(seeds)}, start {len(start)}"
            if start
            else ", without ".join((str(len(seeds)), *seeds[0]["left_out"])),
            f"{made[2]:.0f}",
            f"{fmean(each['graded_samples'] / each['learned_s'] for each in seeds):.1f}" if made[2] else "-",
            " to ".join(f"{mean:.1%}" for mean in _means("pass_at_1", start, seeds)) or "-",
            _over_seeds("log_speed", seeds, start),
            _over_seeds("best_of_n", seeds, start),
            _kept_different(_means("different", start, seeds)),
            *(_over_seeds("log_speed", other, seeds) for other in others.values()),
            made[3],
            ", ".join(made[:2]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines if arms else []


def learned_lines(results: Iterable[Json]) -> list[str]:
    """What learning brought in the longest courses of several arms that had the same seconds and a start beside them, an
    arm a line; empty without any."""
    arms: defaultdict[Made, defaultdict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
    steady = _steady(_on_gpus(results))
    starts = _starts_of(steady)
    for each in steady:
        if each["arm"] != "start":
            arms[_made(each)][each["arm"]].append(each)
    compared = [made for made, found in arms.items() if len(found) > 1 and made[:2] in starts]
    if not compared:
        return []
    longest = max(compared, key=lambda made: (made[2], made))
    start = starts[longest[:2]]
    lines = [
        f"| online learning for {longest[2]:.0f} s, {longest[1]}, {longest[0]} | seeds | pass@1 | single samples over the start | best of n over the start | different of n |",
        "|---" * 6 + "|",
    ]
    found = arms[longest]
    for arm in sorted(found, key=lambda arm: -_gained(found[arm], start)):
        cells = [
            arm,
            str(len(found[arm])),
            " to ".join(f"{mean:.1%}" for mean in _means("pass_at_1", start, found[arm])),
            _over_seeds("log_speed", found[arm], start),
            _over_seeds("best_of_n", found[arm], start),
            _kept_different(_means("different", start, found[arm])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    told = "Validation matrices, from the policy that shipped then; 95 % by a bootstrap over workloads and seeds."
    return [*lines, "", told]


def _on_gpus(results: Iterable[Json]) -> list[Json]:
    return [each for each in results if each.get("kind") == "online" and each["device"]["kind"] == "cuda"]


def _gained(seeds: Sequence[Json], start: Sequence[Json]) -> float:
    own, other = by_seed("log_speed", seeds, start)
    return float(own.mean() - other.mean())


Made = tuple[str, str, float, str]
"""What courses have in common that are compared: commit, device, seconds of learning, settings that are no arm's."""


def _steady(courses: Sequence[Json]) -> list[Json]:
    """Those that were judged once, without the workloads of their commit and device whose starts say nothing: `left_out`."""
    once = [each for each in courses if _is_judged_once(each)]
    once += [_start_of(each) for each in courses if each["against_start"] and each.get("policy") == SHIPPED]
    unsteady = {place: unsteady_workloads(found) for place, found in _starts_of(once).items()}
    return [_without(unsteady.get(_place(each), []), each) for each in once]


def _start_of(course: Json) -> Json:
    """What a course that was judged before it learned says of the start: as much as one that learns nothing."""
    first = {"arm": "start", "judged": course["judged"][:1], "judgements": course["judgements"][:1]}
    return {**course, **first, "against_start": {}, "learned_s": 0.0}


def _starts_of(courses: Iterable[Json]) -> defaultdict[tuple[str, str], list[Json]]:
    """By commit and device."""
    starts: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    for each in courses:
        if each["arm"] == "start":
            starts[_place(each)].append(each)
    return starts


def unsteady_workloads(starts: Sequence[Json]) -> list[str]:
    """Those whose single samples two judgements of the same policy find more than a doubling apart: a brief time of one
    program was wrong there, which says nothing of what was learned."""
    judged = [each["judged"][-1]["workloads"] for each in starts]
    names = sorted({name for each in judged for name in each})
    speeds = {name: [each[name].get("log_speed", 0.0) for each in judged if name in each] for name in names}
    return [name for name, found in speeds.items() if max(found) - min(found) > 1]


def _without(left_out: Sequence[str], course: Json) -> Json:
    last = course["judged"][-1]
    kept = {name: told for name, told in last["workloads"].items() if name not in left_out}
    return {**course, "judged": [*course["judged"][:-1], {**last, "workloads": kept}], "left_out": left_out}


def _made(course: Json) -> Made:
    group, groups, _ = course["course"]["batch"]
    changes = "".join(f", {name}={value}" for name, value in sorted(course["course"].get("changes", {}).items()))
    kinds = len(course.get("lesson_kinds", ())) or KINDS_BEFORE
    matrices = course.get("lesson_matrices", MATRICES_BEFORE)
    of = "" if matrices == MATRICES_BEFORE else f" of {matrices} matrices"
    settings = f"lessons of {kinds} kinds{of}, evaluators {course['evaluators']}, update {groups} x {group}{changes}"
    return *_place(course), float(course["judged"][-1]["at_s"]), settings


def _place(course: Json) -> tuple[str, str]:
    """Commit and device: what is compared has the same."""
    return course["commit"][:8], course["device"]["name"]


def _is_judged_once(course: Json) -> bool:
    """After its seconds; not what an interruption left of a course that would have been judged again."""
    judged = course["judged"]
    return bool(judged) and not course["against_start"] and (course["arm"] == "start") == (judged[-1]["at_s"] == 0)


def by_seed(name: str, *sides: Sequence[Json]) -> list[NDArray[np.float64]]:
    """A figure of each side's last judgements, seeds x workloads, of the workloads that all have."""
    judged = [[each["judged"][-1]["workloads"] for each in side] for side in sides]
    common = sorted(set.intersection(*(set(each) for side in judged for each in side)))
    return [np.array([[each[workload][name] for workload in common] for each in side]) for side in judged]


def _means(name: str, *sides: Sequence[Json]) -> list[float]:
    """Of those sides that have courses; none without a workload that all have."""
    return [float(each.mean()) for each in by_seed(name, *(side for side in sides if side)) if each.size]


def seeds_interval(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Json:
    """Mean difference of seeds x workloads, and 95 % of those of drawn seeds and workloads; the same each time."""
    chance = np.random.default_rng(0)

    def drawn(side: NDArray[np.float64]) -> NDArray[np.float64]:
        means: NDArray[np.float64] = side[chance.integers(len(side), size=(RESAMPLES, len(side)))].mean(axis=1)
        return means

    differences = drawn(ours) - drawn(theirs)
    chosen = chance.integers(ours.shape[1], size=differences.shape)
    low, high = np.quantile(np.take_along_axis(differences, chosen, axis=1).mean(axis=1), [0.025, 0.975])
    return {"mean": float(ours.mean() - theirs.mean()), "low": float(low), "high": float(high)}


def _over_seeds(name: str, ours: Sequence[Json], theirs: Sequence[Json]) -> str:
    if not ours or not theirs:
        return "-"
    own, other = by_seed(name, ours, theirs)
    return _ratio(seeds_interval(own, other)) if own.size else "-"


def _kept_different(means: Sequence[float]) -> str:
    share = f", {means[-1] / means[0]:.0%}" if len(means) > 1 else ""
    return " to ".join(f"{mean:.1f}" for mean in means) + share or "-"


def _asked_again(told: Mapping[str, Any]) -> str:
    return f"{_ratio(told['log_speeds'])}, {told['again']} of {told['workloads']}" if "log_speeds" in told else "-"


def _ratio(change: Mapping[str, float]) -> str:
    """Of speeds, from binary logarithms."""
    mean, low, high = (2 ** change[name] for name in ("mean", "low", "high"))
    return f"{mean:.3f}x ({low:.3f} to {high:.3f})"
